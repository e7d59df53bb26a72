package delivery

import (
	"errors"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/workwire/workwire/pkg/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// BeforeStart is the reason to refuse a status that was signed before this Engine ran: an earlier one
// may have received a later status. Agents are asked for what the source lacks at each connect.
const BeforeStart signing.Reason = "before_start"

const (
	// startSkew is how far the clock of an agent may be behind that of the source for a status that
	// is signed when the Engine starts.
	startSkew = time.Minute
	// untrustedMemory is how long a cluster is reported after its last refused status. An agent that
	// does not sign is asked for its statuses every slowRequests.
	untrustedMemory = slowRequests + 5*time.Minute
	// Refused statuses are logged as often as this: a burst, then one line in ten seconds.
	refusedLogBurst = 10
	refusedLogRate  = 0.1
)

// signatureLimits bound when a status may have been signed.
type signatureLimits struct {
	maxAge  time.Duration // 0: none
	started time.Time     // when the Engine started
}

// decide returns why a status is refused that was signed at a time, if the newest of its work was
// signed at newest, in microseconds; empty if it is not. The one that was signed at newest is a
// duplicate, which its sequence id shows.
func (l signatureLimits) decide(at time.Time, newest int64, now time.Time) signing.Reason {
	if reason := signing.DecideAge(at, now, l.maxAge); reason != "" {
		return reason
	}
	switch {
	case l.maxAge > 0 && at.Before(l.started.Add(-startSkew)):
		return BeforeStart
	case at.UnixMicro() < newest:
		return signing.Replayed
	default:
		return ""
	}
}

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
	return reason != BeforeStart && reason != signing.Replayed
}

// verifyStatus returns why a status is not believed, nil if it is. The status is then the newest
// one of its work.
func (e *Engine) verifyStatus(event cloudevents.Event, from sender, s *wire.Status) *signing.RefusedError {
	if e.config.TrustedAgents == nil || from.check(e.config.Source, s.Source, s.Cluster) == foreign {
		return nil
	}
	at, err := e.config.TrustedAgents.Verify(event, from.cluster)
	if err != nil {
		refused := &signing.RefusedError{Reason: signing.Invalid}
		errors.As(err, &refused)
		return refused
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	w, known := e.state.works[workKey{uid: s.UID, cluster: s.Cluster}]
	newest := int64(0)
	if known {
		newest = w.signed
	}
	limits := e.signatures
	if gained := e.gained[s.Cluster]; gained.After(limits.started) {
		limits.started = gained // what another program has received before is not known here
	}
	if reason := limits.decide(at, newest, time.Now()); reason != "" {
		return &signing.RefusedError{Reason: reason}
	}
	if known {
		w.signed = at.UnixMicro()
	}
	return nil
}

// refuseStatus counts, records and logs a status that is not believed.
func (e *Engine) refuseStatus(m transport.Message, from sender, s *wire.Status, refused *signing.RefusedError) {
	e.metrics.countReceived("status", untrusted)
	e.metrics.untrusted.WithLabelValues(string(refused.Reason)).Inc()
	e.auditReceived(m, from, untrusted, s, string(refused.Reason))
	if refused.Reason == BeforeStart { // after each start
		return
	}
	e.logRefused(from, s, refused)
	if isForgery(refused.Reason) && (e.config.TrustedAgents.Knows(from.cluster) || e.hasWorks(from.cluster)) {
		e.noteDistrust(from.cluster, refused.Reason)
	}
}

// logRefused logs a status that is not believed. Of many, few are logged.
func (e *Engine) logRefused(from sender, s *wire.Status, refused *signing.RefusedError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.refusedLines.TryAccept() {
		e.refusedUnlogged++
		return
	}
	e.log.Warn("status refused because of its signature", "reason", refused.Reason, "key", refused.KeyID, "cluster", from.cluster,
		"uid", s.UID, "notLogged", e.refusedUnlogged)
	e.refusedUnlogged = 0
}

// noteDistrust notes that a status of a cluster was refused.
func (e *Engine) noteDistrust(cluster wire.ClusterName, reason signing.Reason) {
	e.mu.Lock()
	after, report := decideDistrust(e.distrusted[cluster], reason, time.Now())
	e.distrusted[cluster] = after
	e.mu.Unlock()
	if report {
		e.config.OnUntrusted(cluster, after.Untrusted)
	}
}

// endDistrust ends the distrust of a cluster that sends messages, and of which no status was refused
// for long.
func (e *Engine) endDistrust(cluster wire.ClusterName, now time.Time) {
	e.mu.Lock()
	d, known := e.distrusted[cluster]
	ended := known && now.Sub(d.last) >= untrustedMemory
	if ended {
		delete(e.distrusted, cluster)
	}
	e.mu.Unlock()
	if ended {
		e.config.OnUntrusted(cluster, Untrusted{})
	}
}
