package session

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Ask has source asked for the specs that the agent does not hold.
func (s *Session) Ask(source wire.SourceID) { s.asks.Add(source) }

// Answered reports whether source has answered a resync request; any source if it is empty.
func (s *Session) Answered(source wire.SourceID) bool { return s.resyncs.answeredBy(source) }

// AskAgain has a source asked that was not asked yet, or not since it answered. It returns when to
// call AskAgain next. A question without an answer is repeated without it.
func (s *Session) AskAgain(source wire.SourceID) time.Duration {
	if !s.resyncs.isOpen(source) {
		s.Ask(source)
	}
	return s.config.RetryInterval
}

// askUnanswered asks the source of a status resync request again if it has not answered yet, as a
// source that did not accept the cluster. A reply is no reason to.
func (s *Session) askUnanswered(m *wire.StatusResync) {
	if !m.Reply && s.resyncs.isOverdue(m.Source, s.config.RetryInterval, time.Now()) {
		s.Ask(m.Source)
	}
}

// runRepeats repeats questions that were not answered until ctx ends. Without a connection there is
// nothing to repeat: the next connection asks anew.
func (s *Session) runRepeats(ctx context.Context) error {
	return drain(ctx, s.repeats, func(source wire.SourceID) {
		again, wait := s.resyncs.repeat(source, s.config.RetryInterval, time.Now())
		switch {
		case again && s.Connected():
			s.send(ctx, source, wait)
		case wait > 0 && !again:
			s.repeats.AddAfter(source, wait)
		}
	})
}

// runAsks asks the sources of Ask until ctx ends. What fails without a connection is made up for by
// the next connection.
func (s *Session) runAsks(ctx context.Context) error {
	return drain(ctx, s.asks, func(source wire.SourceID) { s.ask(ctx, source) })
}

// drain calls do for each source in queue, one after the other, until ctx ends.
func drain(ctx context.Context, queue workqueue.TypedInterface[wire.SourceID], do func(wire.SourceID)) error {
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		source, stopped := queue.Get()
		if stopped {
			return nil
		}
		do(source)
		queue.Done(source)
	}
}

// resync asks for the specs that the agent has missed (docs/protocol.md, Spec resync).
func (s *Session) resync(ctx context.Context, c transport.Connection) {
	if source, one := s.config.Topics.Source(); one {
		s.ask(ctx, source)
		return
	}
	for _, source := range s.config.Inbox.Sources() {
		s.ask(ctx, source)
	}
	// Without a session the broker has kept nothing. The known sources were asked; an unknown one
	// may have sent something, too.
	if _, ok := s.config.Topics.Broadcast(); ok && !c.Resumed {
		s.ask(ctx, "")
	}
}

// ask asks one source for the specs that the agent does not hold, all of them if source is empty.
// The question is repeated until it is answered.
func (s *Session) ask(ctx context.Context, source wire.SourceID) {
	s.resyncs.open(source, time.Now())
	s.send(ctx, source, 0)
	s.repeats.AddAfter(source, s.config.RetryInterval)
}

// send publishes the open question to source. A repeated one expires when it is repeated next, so
// that the broker keeps no more than one of them for an absent source.
func (s *Session) send(ctx context.Context, source wire.SourceID, expiry time.Duration) {
	request := &wire.SpecResync{Agent: s.config.ClientID, Cluster: s.config.Cluster, Source: source, Accepts: wire.AcceptedByAgents}
	if expiry > 0 {
		request.Expires = time.Now().Add(expiry)
		s.repeats.AddAfter(source, expiry)
	}
	probe := s.resyncs.probeOf(source)
	if source == "" {
		topic, _ := s.config.Topics.Broadcast()
		request.Versions = probe
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
		if len(probe) > 0 { // else it was answered just now
			s.logRequest(ctx, source, topic, s.request(ctx, topic, proofRequest(request, probe)))
		}
		return
	}
	s.config.Inbox.Asked(source)
	request.Versions = append(s.config.Inbox.Versions(source), probe...)
	var large *transport.TooLargeError
	if len(request.Versions) <= wire.MaxResyncEntries {
		err = s.request(ctx, topic, request)
	}
	if len(request.Versions) > wire.MaxResyncEntries || errors.As(err, &large) {
		// The source sends every work that the list leaves out, so a part of the list is no better
		// than an empty one.
		request.Versions = probe
		err = s.request(ctx, topic, request)
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

// publish publishes a question or a digest, signed if the agent signs.
func (s *Session) publish(ctx context.Context, topic string, m wire.Message) error {
	s.signed.Lock()
	defer s.signed.Unlock()
	event, err := wire.Encode(m, time.Now())
	if err == nil && s.config.Sign != nil {
		err = s.config.Sign(&event)
	}
	if err != nil {
		return err
	}
	return s.config.Transport.Publish(ctx, topic, event)
}
