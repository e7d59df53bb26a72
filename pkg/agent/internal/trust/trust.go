// Package trust decides which events of sources an agent believes, if sources sign their events
// (docs/protocol.md, Signatures). An event counts if a trusted key of its source signed it, and if
// it is newer than everything the agent has heard of the same work:
//
//	at, err := gate.Verify(event, source) // the signature
//	...
//	err = gate.Admit(source, at, trust.SpecSubjects(spec)...) // the time
//
// What the agent has heard is kept in memory only. After a start, nothing of a source counts until
// it has signed the answer to a question with an id that the agent has made just then: whatever was
// signed before that answer is refused, so that nothing from before the start can be replayed.
package trust

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// maxSubjects bounds what is remembered of a source: about 10 MB.
const maxSubjects = 1 << 16

// Config configures [New].
type Config struct {
	// Keys that are trusted; required.
	Keys *signing.TrustedKeys
	// MaxAge is how old a signature may be, and how far ahead of the agent's clock. 0: no limit.
	MaxAge time.Duration
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
}

// Gate decides which events the agent believes. A nil Gate believes all. It is safe for concurrent
// use.
type Gate struct {
	config  Config
	limits  limits
	refused *prometheus.CounterVec

	mu      sync.Mutex
	sources map[wire.SourceID]*memory // of sources that have a trusted key
}

// New returns a Gate.
func New(c Config) (*Gate, error) {
	if err := required.Fields(c, "Keys"); err != nil {
		return nil, fmt.Errorf("trust: %w", err)
	}
	if c.MaxAge < 0 {
		return nil, fmt.Errorf("trust: MaxAge must not be negative, got %s", c.MaxAge)
	}
	gate := &Gate{
		config: c, limits: limits{maxAge: c.MaxAge, subjects: maxSubjects}, sources: map[wire.SourceID]*memory{},
		refused: promauto.With(c.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_untrusted_events_total", Help: "Events of sources that were refused because of their signature, by reason.",
		}, []string{"reason"}),
	}
	// increase() counts from the first value that was scraped, so the first refusal needs a zero.
	for _, reason := range []signing.Reason{
		signing.Unsigned, signing.Malformed, signing.UnknownKey, signing.WrongSource, signing.Invalid, Unproven, signing.Expired, signing.Future, signing.Replayed} {
		gate.refused.WithLabelValues(string(reason))
	}
	return gate, nil
}

// Verify returns when an event from a topic of source was signed. Its error is a
// [*signing.RefusedError].
func (g *Gate) Verify(e cloudevents.Event, source wire.SourceID) (time.Time, error) {
	if g == nil {
		return time.Time{}, nil
	}
	return g.config.Keys.Verify(e, source)
}

// Admit notes a verified event about subjects, signed at a time. Its error is a
// [*signing.RefusedError] if the event is not new.
func (g *Gate) Admit(source wire.SourceID, at time.Time, subjects ...string) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.memory(source)
	if reason := m.decide(subjects, at.UnixMicro(), g.limits, time.Now()); reason != "" {
		return &signing.RefusedError{Reason: reason}
	}
	m.note(subjects, at.UnixMicro(), g.limits)
	return nil
}

// AdmitQuestion notes a verified question, signed at a time, which changes nothing: it needs no proof of
// its source. Its error is a [*signing.RefusedError] if the age is wrong or the question is not new.
func (g *Gate) AdmitQuestion(source wire.SourceID, at time.Time, id string) error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, subject := g.memory(source), "question/"+id
	reason := signing.DecideAge(at, time.Now(), g.limits.maxAge)
	if reason == "" && at.UnixMicro() <= m.seen[subject] {
		reason = signing.Replayed
	}
	if reason != "" {
		return &signing.RefusedError{Reason: reason}
	}
	m.note([]string{subject}, at.UnixMicro(), g.limits)
	return nil
}

// Prove notes that source has signed, at a time, an answer to a question of this agent. It reports
// whether that is the first one. Its error is a [*signing.RefusedError] if the age of the answer is
// wrong.
func (g *Gate) Prove(source wire.SourceID, at time.Time) (first bool, err error) {
	if g == nil {
		return false, nil
	}
	if reason := signing.DecideAge(at, time.Now(), g.limits.maxAge); reason != "" {
		return false, &signing.RefusedError{Reason: reason}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.memory(source)
	first = !m.proven
	m.prove(at.UnixMicro())
	return first, nil
}

// Proven reports whether events of source can be admitted: whether it has answered a question.
func (g *Gate) Proven(source wire.SourceID) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m, known := g.sources[source]
	return known && m.proven
}

// memory returns that of a source with a trusted key. g.mu must be held.
func (g *Gate) memory(source wire.SourceID) *memory {
	m := g.sources[source]
	if m == nil {
		m = &memory{}
		g.sources[source] = m
	}
	return m
}

// Refused counts and logs an event that was refused.
func (g *Gate) Refused(logger *slog.Logger, err *signing.RefusedError) {
	g.refused.WithLabelValues(string(err.Reason)).Inc()
	if err.Reason != Unproven { // after each start
		logger.Warn("event refused because of its signature", "reason", err.Reason, "key", err.KeyID)
	}
}

// SpecSubjects returns the subjects of a spec: its work, and unless it is a deletion or was not
// decoded, the name of the work, which another work may have taken since.
func SpecSubjects(s *wire.Spec) []string {
	subjects := []string{"uid/" + string(s.UID)}
	if s.Bundle != nil {
		subjects = append(subjects, "name/"+s.Meta.Name)
	}
	return subjects
}

// ResyncSubject returns the subject of a status resync request: the topic that it came on, since two
// topics have no order.
func ResyncSubject(r *wire.StatusResync) string { return "resync/" + string(r.Cluster) }
