package delivery

import (
	"errors"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// isForgery reports whether a status that is refused for this reason was not made by an agent that
// signs as it should, with a clock that is right. Others may only have come late.
func isForgery(reason signing.Reason) bool {
	return reason != signing.BeforeStart && reason != signing.Replayed
}

// verifyStatus returns why a status is not believed, nil if it is. The status is then the newest
// one of its work.
func (e *Engine) verifyStatus(event cloudevents.Event, from sender, s *wire.Status) *signing.RefusedError {
	if e.config.TrustedAgents == nil || from.check(e.config.Source, s.Source, s.Cluster) == foreign {
		return nil
	}
	at, refused := e.signedAt(event, from)
	if refused != nil {
		return refused
	}
	in := &statusSigned{key: workKey{uid: s.UID, cluster: s.Cluster}, at: at}
	return e.refusedFor(in, &in.reason)
}

// refusedFor passes an input to the core, which sets reason, and returns why an event is not believed, nil if it is.
func (e *Engine) refusedFor(in input, reason *signing.Reason) *signing.RefusedError {
	if e.step(in); *reason != "" {
		return &signing.RefusedError{Reason: *reason}
	}
	return nil
}

// signedAt returns when an event of an agent was signed, or why its signature is none of its cluster.
func (e *Engine) signedAt(event cloudevents.Event, from sender) (time.Time, *signing.RefusedError) {
	at, err := e.config.TrustedAgents.Verify(event, from.cluster)
	if err == nil {
		return at, nil
	}
	refused := &signing.RefusedError{Reason: signing.Invalid}
	errors.As(err, &refused)
	return time.Time{}, refused
}

// questionIn returns the kind of the question of an agent in a message, and the source and cluster that it
// names; kind is empty if the message is none.
func questionIn(message wire.Message) (kind string, source wire.SourceID, cluster wire.ClusterName) {
	switch m := message.(type) {
	case *wire.SpecResync:
		return "spec_resync", m.Source, m.Cluster
	case *wire.Digest:
		return "digest", m.Source, m.Cluster
	default:
		return "", "", ""
	}
}

// believes reports whether the question of an agent in a message counts, and counts, records and logs one
// that does not: it is not signed as it must be, or not signed after the last one. Other messages count.
func (e *Engine) believes(m transport.Message, from sender, message wire.Message) bool {
	kind, source, cluster := questionIn(message)
	if kind == "" || e.config.TrustedAgents == nil || from.check(e.config.Source, source, cluster) == foreign {
		return true
	}
	at, refused := e.signedAt(m.Event, from)
	if refused == nil {
		in := &questionSigned{cluster: cluster, order: questionOrder{kind, from.source == ""}, at: at}
		refused = e.refusedFor(in, &in.reason)
	}
	if refused == nil {
		return true
	}
	e.refuse(m, from, kind, nil, refused)
	return false
}

// refuse reports and logs an event of an agent that is not believed; s is nil if it is no status.
func (e *Engine) refuse(m transport.Message, from sender, kind string, s *wire.Status, refused *signing.RefusedError) {
	e.report(Received{Topic: m.Topic, Cluster: from.cluster, Kind: kind, Status: s, verdict: untrusted, reason: refused.Reason})
	if refused.Reason == signing.BeforeStart { // after each start
		return
	}
	e.logRefused(from, s, refused)
	if isForgery(refused.Reason) {
		e.step(distrusted{from.cluster, refused.Reason, e.config.TrustedAgents.Knows(from.cluster)})
	}
}

// logRefused logs an event of an agent that is not believed; s is nil if it is no status.
func (e *Engine) logRefused(from sender, s *wire.Status, refused *signing.RefusedError) {
	log := e.log.With("reason", refused.Reason, "key", refused.KeyID, "cluster", from.cluster)
	if s != nil {
		log.Warn("status refused because of its signature", "uid", s.UID)
	} else {
		log.Warn("question of an agent refused because of its signature")
	}
}
