package delivery

import (
	"errors"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// isForgery reports whether a status that is refused for this reason was not made by an agent that
// signs as it should, with a clock that is right. Others may only have come late.
func isForgery(reason signing.Reason) bool {
	return reason != signing.BeforeStart && reason != signing.Replayed
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

// believes reports whether the status or the question of an agent in a message counts, and counts, records and logs one
// that does not: it is not signed as it must be, or not after the last one. Other messages count.
func (e *Engine) believes(m transport.Message, from sender, message wire.Message) bool {
	kind, source, cluster := questionIn(message)
	s := statusIn(message)
	if s != nil {
		kind, source, cluster = "status", s.Source, s.Cluster
	}
	if kind == "" || e.config.TrustedAgents == nil || from.check(e.config.Source, source, cluster) == foreign {
		return true
	}
	refused := &signing.RefusedError{Reason: signing.Invalid}
	at, err := e.config.TrustedAgents.Verify(m.Event, from.cluster)
	switch {
	case err != nil:
		errors.As(err, &refused)
	case s != nil:
		in := &statusSigned{key: workKey{uid: s.UID, cluster: cluster}, at: at}
		e.step(in)
		refused.Reason = in.reason
	default:
		in := &questionSigned{cluster: cluster, order: questionOrder{kind, from.source == ""}, at: at}
		e.step(in)
		refused.Reason = in.reason
	}
	if err == nil && refused.Reason == "" {
		return true
	}
	e.refuse(m, from, kind, s, refused)
	return false
}

// refuse reports and logs an event of an agent that is not believed; s is nil if it is no status.
func (e *Engine) refuse(m transport.Message, from sender, kind string, s *wire.Status, refused *signing.RefusedError) {
	e.report(Received{Topic: m.Topic, Cluster: from.cluster, Kind: kind, Status: s, verdict: untrusted, reason: refused.Reason})
	if refused.Reason == signing.BeforeStart { // after each start
		return
	}
	log := e.log.With("reason", refused.Reason, "key", refused.KeyID, "cluster", from.cluster)
	if s != nil {
		log.Warn("status refused because of its signature", "uid", s.UID)
	} else {
		log.Warn("question of an agent refused because of its signature")
	}
	if isForgery(refused.Reason) {
		e.step(distrusted{from.cluster, refused.Reason, e.config.TrustedAgents.Knows(from.cluster)})
	}
}
