package delivery

import (
	"errors"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// untrustedMemory is how long a cluster is reported after its last refused status. An agent that
	// does not sign is asked for its statuses every slowRequests.
	untrustedMemory = slowRequests + 5*time.Minute
	// Refused statuses are logged as often as this: a burst, then one line in ten seconds.
	refusedLogBurst = 10
	refusedLogRate  = 0.1
)

// Untrusted says that statuses in the name of a cluster are refused. The zero value says that they are
// not any more.
type Untrusted struct {
	// Since is when the first one was refused.
	Since time.Time
	// Reason is why the last one was that this was reported for.
	Reason signing.Reason
}

// distrust is what is known of a cluster of which a status was refused.
type distrust struct {
	Untrusted
	last, reported time.Time
}

// decideDistrust returns what is known of a cluster after one of its statuses was refused, and whether
// to report it: at first, and when the reason has changed, once in a minute.
func decideDistrust(before distrust, reason signing.Reason, now time.Time) (after distrust, report bool) {
	after = before
	after.last = now
	if before.Since.IsZero() {
		after.Since = now
	}
	if before.Since.IsZero() || reason != before.Reason && now.Sub(before.reported) >= time.Minute {
		after.Reason, after.reported = reason, now
		return after, true
	}
	return after, false
}

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

// statusSigned: an agent has signed a status at this time. If it is believed, it is the newest one of its work.
type statusSigned struct {
	key    workKey
	at     time.Time
	reason signing.Reason // set by step: why it is not believed
}

func (in *statusSigned) apply(d *core, now time.Time) {
	w, known := d.works[in.key]
	newest := int64(0)
	if known {
		newest = w.signed
	}
	if in.reason = d.window(in.key.cluster).Decide(in.at, newest, now); in.reason == "" && known {
		w.signed = in.at.UnixMicro()
	}
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

// window returns when events of a cluster may have been signed.
func (d *core) window(cluster wire.ClusterName) signing.Window {
	w := d.signatures
	if c, ok := d.clusters[cluster]; ok && c.gained.After(w.Started) {
		w.Started = c.gained // what another program has received before is not known here
	}
	return w
}

// questionOrder identifies what is in order among the questions of a cluster: those of one kind on one topic.
type questionOrder struct {
	kind      string
	broadcast bool
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

// questionSigned: an agent has signed a question at this time. If it is believed, it is the newest one of its order.
type questionSigned struct {
	cluster wire.ClusterName
	order   questionOrder
	at      time.Time
	reason  signing.Reason // set by step: why it is not believed
}

func (in *questionSigned) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return // its question is not asked
	}
	c := d.cluster(in.cluster)
	if in.reason = d.window(in.cluster).Decide(in.at, c.asked[in.order]+1, now); in.reason == "" {
		if c.asked == nil {
			c.asked = make(map[questionOrder]int64)
		}
		c.asked[in.order] = in.at.UnixMicro()
	}
	d.release(c)
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

// logRefused logs an event of an agent that is not believed; s is nil if it is no status. Of many, few
// are logged.
func (e *Engine) logRefused(from sender, s *wire.Status, refused *signing.RefusedError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.refusedLines.TryAccept() {
		e.refusedUnlogged++
		return
	}
	attributes := []any{"reason", refused.Reason, "key", refused.KeyID, "cluster", from.cluster, "notLogged", e.refusedUnlogged}
	if s != nil {
		e.log.Warn("status refused because of its signature", append(attributes, "uid", s.UID)...)
	} else {
		e.log.Warn("question of an agent refused because of its signature", attributes...)
	}
	e.refusedUnlogged = 0
}

// distrusted: a status or a question of a cluster was refused. known reports whether there is a key for the cluster.
type distrusted struct {
	cluster wire.ClusterName
	reason  signing.Reason
	known   bool
}

func (in distrusted) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) || !in.known && !d.hasWorks(in.cluster) {
		return
	}
	c := d.cluster(in.cluster)
	after, report := decideDistrust(c.distrust, in.reason, now)
	if c.distrust = after; report {
		d.act(TrustChanged{in.cluster, after.Untrusted})
	}
}
