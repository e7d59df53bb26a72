package session

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/questions"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// asking calls change with what is asked of sources and the time, and has runQuestions do what is due then.
func (s *Session) asking(change func(q *questions.Questions, now time.Time)) {
	s.questions.Lock()
	change(s.questions.Questions, time.Now())
	s.questions.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // runQuestions has yet to look
	}
}

// Ask has source asked for the specs that the agent does not hold.
func (s *Session) Ask(source wire.SourceID) {
	s.asking(func(q *questions.Questions, now time.Time) { q.Ask(source, now) })
}

// Answered reports whether source has answered a resync request; any source if it is empty.
func (s *Session) Answered(source wire.SourceID) bool {
	s.questions.Lock()
	defer s.questions.Unlock()
	return s.questions.HasAnswered(source)
}

// AskAgain has a source asked that was not asked yet, or not since it answered. It returns when to
// call AskAgain next. A question without an answer is repeated without it.
func (s *Session) AskAgain(source wire.SourceID) time.Duration {
	s.asking(func(q *questions.Questions, now time.Time) { q.AskOnce(source, now) })
	return s.config.RetryInterval
}

// heard notes a message from source.
func (s *Session) heard(source wire.SourceID) {
	s.questions.Lock()
	defer s.questions.Unlock()
	s.questions.Heard(source)
}

// toAsk returns the sources to ask for the specs that the agent has missed (docs/protocol.md, Spec resync) when a connection was made.
func (s *Session) toAsk(c transport.Connection) []wire.SourceID {
	if source, one := s.config.Topics.Source(); one {
		return []wire.SourceID{source}
	}
	sources := s.config.Inbox.Sources()
	// Without a session the broker has kept nothing. The known sources are asked; an unknown one
	// may have sent something, too. So it may to an agent that has just started: the cluster may have been restored from a time at
	// which it had nothing of that source.
	again := s.asked.Swap(true)
	if _, ok := s.config.Topics.Broadcast(); ok && (!c.Resumed || !again) {
		sources = append(sources, "")
	}
	return sources
}

// runQuestions does what is due until ctx ends.
func (s *Session) runQuestions(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now := time.Now()
		s.questions.Lock()
		due, next := s.questions.Due(now), s.questions.Next(now)
		s.questions.Unlock()
		for _, action := range due {
			s.do(ctx, action)
		}
		timer.Stop()
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-timer.C:
		}
	}
}

func (s *Session) do(ctx context.Context, action questions.Action) {
	switch action := action.(type) {
	case questions.Decide:
		s.decide(action.Source)
	case questions.SendDigests:
		for _, source := range s.digestSources(action.Heard) {
			s.sendDigest(ctx, source)
		}
	case questions.Ask:
		s.send(ctx, action)
	case questions.Request:
		if action.First {
			s.config.Inbox.Asked(action.Source)
		}
		s.config.Inbox.Expect(action.Source, action.Versions)
		s.requestWorks(ctx, &wire.SpecResync{
			Agent: s.config.ClientID, Cluster: s.config.Cluster, Source: action.Source, Versions: action.Versions, Partial: true,
		})
	}
}

// send publishes a question. What fails without a connection is made up for by the next connection.
func (s *Session) send(ctx context.Context, ask questions.Ask) {
	source := ask.Source
	request := &wire.SpecResync{Agent: s.config.ClientID, Cluster: s.config.Cluster, Source: source, Accepts: wire.Accepted}
	if ask.Expiry > 0 {
		request.Expires = time.Now().Add(ask.Expiry)
	}
	probe := []wire.SpecVersion{{UID: ask.Probe, Probe: true}}
	if source == "" {
		topic, _ := s.config.Topics.Broadcast()
		request.Versions = probe
		s.config.Inbox.Expect("", nil)
		s.logRequest(ctx, "all", topic, s.request(ctx, topic, request))
		return
	}
	topic, err := s.config.Topics.Events(source)
	if err != nil {
		s.config.Logger.Error("resync failed: the source has no topic", "source", source, "error", err)
		return
	}
	// If the topics name one source, only that source listens to the broadcast topic, and OCM's
	// sources expect requests there.
	if broadcast, ok := s.config.Topics.Broadcast(); ok {
		if _, one := s.config.Topics.Source(); one {
			topic = broadcast
		}
	}
	if !s.config.Trust.Proven(source) {
		s.logRequest(ctx, source, topic, s.request(ctx, topic, proofRequest(request, probe)))
		return
	}
	s.config.Inbox.Asked(source)
	s.config.Inbox.Expect(source, nil)
	held := s.config.Inbox.Versions(source)
	request.Versions = slices.Concat(held, probe)
	var large *transport.TooLargeError
	if len(request.Versions) <= wire.MaxResyncEntries {
		err = s.request(ctx, topic, request)
	}
	if len(request.Versions) > wire.MaxResyncEntries || errors.As(err, &large) {
		// The source sends every work that the list leaves out, so a part of the list is no better
		// than an empty one.
		request.Versions = probe
		err = s.request(ctx, topic, request)
		// The source is not told of works that it does not have. While specs are missing, many may differ: there the usual digests
		// do, if there are any.
		if s.config.DigestInterval == 0 || !slices.ContainsFunc(held, func(v wire.SpecVersion) bool { return v.Generation == 0 }) {
			s.sendDigest(ctx, source)
		}
	}
	s.logRequest(ctx, source, topic, err)
}

// proofRequest returns request for nothing but the deletion of the probe, which proves that what the
// source signs afterwards is not from before the start of the agent.
func proofRequest(request *wire.SpecResync, probe []wire.SpecVersion) *wire.SpecResync {
	proof := *request
	proof.Partial = true
	for _, version := range probe {
		version.Generation = 1 // a partial request lists as 0 what the agent does not hold
		proof.Versions = append(proof.Versions, version)
	}
	return &proof
}

// requestDiffering requests the works whose specs differ from those that m lists.
func (s *Session) requestDiffering(m *wire.StatusResync) {
	if differing := s.config.Inbox.Differing(m); len(differing) > 0 {
		s.partial.Add(float64(len(differing)))
		s.lack(m.Source, differing)
	}
}

// lack has source asked for works; for all that the agent lacks if too many wait.
func (s *Session) lack(source wire.SourceID, works []wire.SpecVersion) {
	s.asking(func(q *questions.Questions, now time.Time) { q.Lack(source, works, now) })
}

const (
	// partialListMax is the maximum size in bytes of a partial spec resync request, whatever larger
	// packets the broker accepts, and requestHeadroom that of an event without its data.
	partialListMax  = 128 << 10
	requestHeadroom = 2 << 10
)

// requestWorks publishes a partial request, in parts that fit the broker's packet limit.
func (s *Session) requestWorks(ctx context.Context, request *wire.SpecResync) {
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

// logRequest logs why a request failed, unless the next connection repeats it.
func (s *Session) logRequest(ctx context.Context, source wire.SourceID, topic string, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, transport.ErrNotConnected) {
		return
	}
	s.config.Logger.Error("resync failed; specs sent while the agent was away may be missing", "source", source, "topic", topic, "error", err)
}

func (s *Session) request(ctx context.Context, topic string, request *wire.SpecResync) error {
	s.requests.Inc()
	return s.publish(ctx, topic, request)
}

// publish publishes a question or a digest, signed if the agent signs. Only runQuestions calls it: sources drop what is not in the order
// of its signatures.
func (s *Session) publish(ctx context.Context, topic string, m wire.Message) error {
	event, err := wire.Encode(m, time.Now())
	if err == nil && s.config.Sign != nil {
		err = s.config.Sign(&event)
	}
	if err != nil {
		return err
	}
	return s.config.Transport.Publish(ctx, topic, event)
}
