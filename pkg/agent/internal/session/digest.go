package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// digestSources returns the sources to send digests to: the one that the topics name, or all that
// have works here or were heard from.
func (s *Session) digestSources(heard []wire.SourceID) []wire.SourceID {
	if source, one := s.config.Topics.Source(); one {
		return []wire.SourceID{source}
	}
	return sets.List(sets.New(s.config.Inbox.Sources()...).Insert(heard...))
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
		Buckets: wire.NewBuckets(works), Expires: time.Now().Add(cmp.Or(s.config.DigestInterval, time.Minute)),
	})
	if err == nil {
		s.digests.Inc()
	} else if ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		s.config.Logger.Warn("publishing a digest failed", "source", source, "topic", topic, "error", err)
	}
}
