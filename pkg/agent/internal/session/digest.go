package session

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// digestJitter is the share by which the time between digests varies at random.
	digestJitter = 0.1
	// partialListMax is the maximum size in bytes of a partial spec resync request, whatever larger
	// packets the broker accepts, and requestHeadroom that of an event without its data.
	partialListMax  = 128 << 10
	requestHeadroom = 2 << 10
	// answerWindow is for how long the works that a source disowns after partial requests count as
	// one answer: a source that has lost its memory disowns them in many.
	answerWindow = 10 * time.Minute
)

// sources are the sources that the agent has heard from. Its zero value is empty. It is safe for
// concurrent use.
type sources struct {
	mu    sync.Mutex
	heard sets.Set[wire.SourceID]
}

// heard notes a message from source.
func (s *Session) heard(source wire.SourceID) {
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	if s.known.heard == nil {
		s.known.heard = sets.New[wire.SourceID]()
	}
	s.known.heard.Insert(source)
}

// digestSources returns the sources to send digests to: the one that the topics name, or all that
// have works here or were heard from.
func (s *Session) digestSources() []wire.SourceID {
	if source, one := s.config.Topics.Source(); one {
		return []wire.SourceID{source}
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	return sets.New(s.config.Inbox.Sources()...).Union(s.known.heard).UnsortedList()
}

// runDigests sends digests until ctx ends, the first one after a random part of the interval.
func (s *Session) runDigests(ctx context.Context) error {
	var due <-chan time.Time
	wait := func(d time.Duration) {
		if s.config.DigestInterval > 0 {
			due = time.After(d)
		}
	}
	wait(time.Duration(rand.Float64() * float64(s.config.DigestInterval)))
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-due:
			wait(time.Duration((1 + digestJitter*rand.Float64()) * float64(s.config.DigestInterval)))
			if !s.Connected() {
				continue
			}
			for _, source := range s.digestSources() {
				s.sendDigest(ctx, source)
			}
		}
	}
}

// sendDigest sends a digest of the works of source (docs/protocol.md, Digest). Its cost is linear in
// the works of the source.
func (s *Session) sendDigest(ctx context.Context, source wire.SourceID) {
	topic, err := s.config.Topics.Events(source)
	if err != nil {
		return // as for all messages to the source, which is logged when it is asked
	}
	if s.config.Inbox.RoomAgain(source) {
		s.Ask(source)
	}
	works := s.config.Inbox.Digests(source)
	s.config.Outbox.AddDigests(source, works)
	err = s.publish(ctx, topic, &wire.Digest{
		Agent: s.config.ClientID, Cluster: s.config.Cluster, Source: source,
		Buckets: wire.NewBuckets(works), Expires: time.Now().Add(s.config.DigestInterval),
	})
	if err == nil {
		s.digests.Inc()
	} else if ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		s.config.Logger.Warn("publishing a digest failed", "source", source, "topic", topic, "error", err)
	}
}

// requestDiffering requests the works whose specs differ from those that m lists.
func (s *Session) requestDiffering(m *wire.StatusResync) {
	differing := s.config.Inbox.Differing(m)
	if len(differing) == 0 {
		return
	}
	s.partial.Add(float64(len(differing)))
	s.askPartially(m.Source, differing)
}

// askPartially has source asked for the works in versions; for all that the agent lacks if too many wait.
func (s *Session) askPartially(source wire.SourceID, versions []wire.SpecVersion) {
	if s.partials.add(source, versions) {
		s.partialTurns.Add(source)
	} else {
		s.Ask(source)
	}
}

// runPartials publishes the partial requests until ctx ends, a part of those of a source in its turn.
func (s *Session) runPartials(ctx context.Context) error {
	asked := map[wire.SourceID]time.Time{}
	return drain(ctx, s.partialTurns, func(source wire.SourceID) {
		versions, more := s.partials.take(source)
		if len(versions) == 0 {
			return
		}
		if last, ok := asked[source]; !ok || time.Since(last) > answerWindow {
			s.config.Inbox.Asked(source)
		}
		asked[source] = time.Now()
		s.requestPartial(ctx, &wire.SpecResync{
			Agent: s.config.ClientID, Cluster: s.config.Cluster, Source: source, Versions: versions, Partial: true,
		})
		if more {
			s.partialTurns.Add(source)
		}
	})
}

// requestPartial publishes a partial request, in parts that fit the broker's packet limit.
func (s *Session) requestPartial(ctx context.Context, request *wire.SpecResync) {
	topic, err := s.config.Topics.Events(request.Source)
	if err != nil {
		return
	}
	limit := partialListMax
	if announced := s.config.Transport.Limit(); announced > 0 {
		limit = min(limit, max(announced-requestHeadroom, 1))
	}
	s.config.Logger.Info("works differ from those of their source, requesting them", "source", request.Source, "count", len(request.Versions))
	for _, part := range request.Split(limit) {
		if err := s.request(ctx, topic, part); err != nil {
			s.logRequest(ctx, request.Source, topic, err)
			return
		}
	}
}
