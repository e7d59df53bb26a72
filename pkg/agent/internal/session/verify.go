package session

import (
	"errors"
	"log/slog"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/questions"
	"github.com/workwire/workwire/pkg/agent/internal/trust"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// verify reports whether the agent believes that source made the event m, and when it was signed. It
// counts what it refuses, and shows it in the work that the event names; spec is nil if it names none.
func (s *Session) verify(logger *slog.Logger, m transport.Message, source wire.SourceID, spec *wire.Spec) (at time.Time, trusted bool) {
	at, err := s.config.Trust.Verify(m.Event, source)
	refused, ok := errors.AsType[*signing.RefusedError](err)
	if !ok {
		return at, true
	}
	if spec != nil && spec.Source == source {
		logger = workLogger(logger, spec)
		s.config.Inbox.Distrust(inbox.Key{Source: source, UID: spec.UID}, string(refused.Reason))
	}
	s.untrusted(logger, m, spec, refused)
	return at, false
}

// untrusted counts, logs and records that an event was refused; spec is nil if it is not known.
func (s *Session) untrusted(logger *slog.Logger, m transport.Message, spec *wire.Spec, refused *signing.RefusedError) {
	s.config.Trust.Refused(logger, refused)
	s.audit(m, spec, "untrusted", string(refused.Reason), false)
}

// admit reports whether the event m of source about subjects, signed at a time, is new; spec is nil
// if it is none. A source that has proved nothing yet is asked: no other event may come that tells of it, as when the agent has
// started again in its session before the source had a work for it.
func (s *Session) admit(logger *slog.Logger, m transport.Message, spec *wire.Spec, source wire.SourceID, at time.Time, subjects ...string) bool {
	refused, ok := errors.AsType[*signing.RefusedError](s.config.Trust.Admit(source, at, subjects...))
	if ok {
		s.untrusted(logger, m, spec, refused)
		if refused.Reason == trust.Unproven {
			s.asking(func(q *questions.Questions, now time.Time) { q.AskOnce(source, now) })
		}
	}
	return !ok
}

// receiveAnswer handles the answer to a resync request, signed at a time. The first one proves that
// what its source signs from now on is not from before the start of the agent; it is then asked for
// its works.
func (s *Session) receiveAnswer(logger *slog.Logger, m transport.Message, spec *wire.Spec, at time.Time) {
	proved, err := s.config.Trust.Prove(spec.Source, at)
	if refused, ok := errors.AsType[*signing.RefusedError](err); ok {
		s.untrusted(logger, m, spec, refused)
		return
	}
	s.heard(spec.Source)
	if proved {
		s.asking(func(q *questions.Questions, now time.Time) { q.Proved(spec.Source, spec.UID, now) })
		s.presence.announce() // what it has asked before did not count
		return
	}
	var first bool
	if s.asking(func(q *questions.Questions, _ time.Time) { first = q.Answered(spec.Source, spec.UID) }); first {
		s.config.SourceAnswered()
	}
}
