package session

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/questions"
	"github.com/workwire/workwire/pkg/agent/internal/trust"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	undecodable  = "undecodable"  // the reason to ignore or refuse a message
	unknownBase  = "unknown_base" // the verdict on a spec delta that cannot be used
	foreignTopic = "its source or cluster is not that of its topic"
)

// receive handles one message. It acknowledges the message once its effect is held.
func (s *Session) receive(_ context.Context, m transport.Message) {
	source, cluster, shaped := wire.TopicSender(m.Topic)
	logger := s.config.Logger.With("topic", m.Topic, "source", source)
	switch {
	case m.Err != nil:
		s.ignore(logger, m, "not a CloudEvent", m.Err)
		return
	case !shaped:
		s.ignore(logger, m, "on a topic of no known shape", nil)
		return
	case cluster != "" && cluster != s.config.Cluster:
		s.ignore(logger, m, "for another cluster", nil)
		return
	}
	if !s.affords(m, source, time.Now()) {
		s.received.WithLabelValues(overQuota).Inc()
		s.audit(m, nil, overQuota, "", false)
		logger.Warn("message dropped: its source sends more than its quota, it is asked again")
		m.Ack()
		return
	}
	message, err := wire.Decode(m.Event)
	var failure *wire.DecodeError
	if errors.Is(err, wire.ErrUnknownDataType) {
		m.Ack()
		return
	}
	at, trusted := s.verify(logger, m, source, specIn(message, err))
	if !trusted {
		m.Ack()
		return
	}
	if errors.Is(err, wire.ErrSealed) {
		message, err = s.open(m.Event, err)
	}
	if err == nil {
		message, err = s.closed(m.Event, source, message)
	}
	switch {
	case errors.As(err, &failure) && failure.Question != nil:
		s.receiveDryRun(logger, m, source, failure.Question, at, failure.Err)
		m.Ack()
		return
	case errors.As(err, &failure):
		s.refuse(logger, m, source, failure, at)
		return
	case err != nil:
		s.ignore(logger, m, undecodable, err)
		return
	}
	s.receiveMessage(logger, m, source, message, at)
}

// receiveMessage handles what a message from a topic of source says, signed at a time.
func (s *Session) receiveMessage(logger *slog.Logger, m transport.Message, source wire.SourceID, message wire.Message, at time.Time) {
	switch message := message.(type) {
	case *wire.Spec:
		s.receiveSpec(workLogger(logger, message), m, source, message, at)
	case *wire.SpecDelta:
		s.receiveSpecDelta(workLogger(logger, &message.Of), m, source, message, at)
	case *wire.StatusResync:
		if message.Source == source && (message.Cluster == "" || message.Cluster == s.config.Cluster) {
			s.receiveStatusResync(logger, m, message, at)
		}
		m.Ack()
	case *wire.DryRun:
		s.receiveDryRun(logger, m, source, message, at, nil)
		m.Ack()
	default:
		s.ignore(logger, m, "not for an agent", nil)
	}
}

// receiveDryRun has a question from a topic of source answered, signed at a time. unsealed is why its data
// cannot be opened, or must not be in clear; nil for others.
func (s *Session) receiveDryRun(logger *slog.Logger, m transport.Message, source wire.SourceID, question *wire.DryRun, at time.Time, unsealed error) {
	if question.Source != source || question.Cluster != s.config.Cluster {
		s.ignore(logger, m, foreignTopic, nil)
		return
	}
	if refused, ok := errors.AsType[*signing.RefusedError](s.config.Trust.AdmitQuestion(source, at, question.ID)); ok {
		s.untrusted(logger, m, nil, refused)
		return
	}
	s.config.DryRun(question, unsealed)
}

// receiveStatusResync handles a request for statuses, signed at a time.
func (s *Session) receiveStatusResync(logger *slog.Logger, m transport.Message, r *wire.StatusResync, at time.Time) {
	if !s.admit(logger, m, nil, r.Source, at, trust.ResyncSubject(r)) {
		if !s.config.Trust.Proven(r.Source) {
			s.Ask(r.Source) // it was away when it was asked
		}
		return
	}
	s.heard(r.Source)
	s.config.Outbox.Accepts(r.Source, r.Accepts)
	s.config.Outbox.Resync(r)
	if r.Buckets != nil {
		s.requestDiffering(r)
	} else {
		s.identified(r)
		if !r.Reply { // a source that did not answer is there again, as one that did not accept the cluster
			s.asking(func(q *questions.Questions, now time.Time) { q.AskOverdue(r.Source, now) })
		}
		s.presence.announce() // the source may not have received the last announcement
	}
}

// receiveSpec handles a spec from a topic of source, signed at a time.
func (s *Session) receiveSpec(logger *slog.Logger, m transport.Message, source wire.SourceID, spec *wire.Spec, at time.Time) {
	if spec.Source != source || spec.Cluster != s.config.Cluster {
		s.ignore(logger, m, foreignTopic, nil)
		return
	}
	if s.questions.IsProbe(spec) {
		s.receiveAnswer(logger, m, spec, at)
		m.Ack()
		return
	}
	if !s.admit(logger, m, spec, source, at, trust.SpecSubjects(spec)...) {
		s.config.Inbox.Barrier(ackWhenHeld(m)) // of a repeated event, the first one may not be on disk
		return
	}
	s.heard(source)
	s.config.Outbox.Accepts(source, spec.Accepts)
	span, traced := s.traceSpec(m, spec)
	change := s.config.Inbox.Put(spec, ackWhenHeld(m))
	s.endTraceSpec(span, traced, change)
	s.received.WithLabelValues(change.Verdict.String()).Inc()
	s.audit(m, spec, change.Verdict.String(), "", change.Verdict.Changes())
	logger.Debug("received a spec", "generation", spec.Generation, "action", spec.Action, "verdict", change.Verdict.String())
	if change.Superseded != nil {
		s.config.Superseded(*change.Superseded)
	}
	switch change.Verdict {
	case inbox.Unknown:
		s.config.Outbox.ReportDeleted(spec)
	case inbox.Refused, inbox.Full:
		logger.Warn("spec refused: the agent holds as many of the source as it may", "verdict", change.Verdict.String())
	case inbox.Early:
		if held, ok := s.config.Inbox.Get(change.Key); ok && change.Ask {
			logger.Info("deletion put off: it follows a spec that is missing, asking for that", "generation", spec.Generation, "held", held.Generation)
			s.lack(source, []wire.SpecVersion{{UID: spec.UID, Generation: held.Generation, Recorded: held.Generation == 0}})
		}
	case inbox.Held, inbox.Disowned:
		s.asking(func(q *questions.Questions, now time.Time) { q.Disowned(source, now.Add(inbox.AnswerQuiet)) })
	}
}

// receiveSpecDelta handles a spec that a topic of source brought as the difference from an earlier one,
// signed at a time. If it cannot be used, the source is asked for the whole.
func (s *Session) receiveSpecDelta(logger *slog.Logger, m transport.Message, source wire.SourceID, d *wire.SpecDelta, at time.Time) {
	if d.Of.Source != source || d.Of.Cluster != s.config.Cluster {
		s.ignore(logger, m, foreignTopic, nil)
		return
	}
	s.owes(source, s.config.Inbox.Size(inbox.Key{Source: source, UID: d.Of.UID}))
	spec, err := s.config.Inbox.Resolve(d)
	if err == nil {
		s.receiveSpec(logger, m, source, spec, at)
		return
	}
	if s.admit(logger, m, &d.Of, source, at, trust.SpecSubjects(&d.Of)...) {
		logger.Debug("spec delta cannot be used, asking for the spec", "generation", d.Of.Generation, "error", err)
		s.heard(source)
		s.received.WithLabelValues(unknownBase).Inc()
		s.audit(m, &d.Of, unknownBase, "", false)
		s.lack(source, []wire.SpecVersion{{UID: d.Of.UID}})
	}
	m.Ack()
}

// refuse handles a spec that could not be decoded. The status of its work will tell why.
func (s *Session) refuse(logger *slog.Logger, m transport.Message, source wire.SourceID, failure *wire.DecodeError, at time.Time) {
	if spec := failure.Spec; spec != nil {
		logger = workLogger(logger, spec)
		if spec.Source != source || spec.Cluster != s.config.Cluster {
			s.ignore(logger, m, foreignTopic, failure)
			return
		}
		if !s.admit(logger, m, spec, source, at, trust.SpecSubjects(spec)...) {
			s.config.Inbox.Barrier(ackWhenHeld(m))
			return
		}
	}
	change := s.config.Inbox.Refuse(failure, ackWhenHeld(m))
	s.received.WithLabelValues(change.Verdict.String()).Inc()
	reason := undecodable
	if closed, ok := errors.AsType[*sealing.OpenError](failure); ok {
		reason = string(closed.Reason)
	}
	s.audit(m, failure.Spec, change.Verdict.String(), reason, false)
	logger.Warn("spec refused", "error", failure.Err, "verdict", change.Verdict.String())
}

// ignore acknowledges and drops a message that nobody can be told about.
func (s *Session) ignore(logger *slog.Logger, m transport.Message, reason string, err error) {
	s.received.WithLabelValues("ignored").Inc()
	s.audit(m, nil, "ignored", reason, false)
	logger.Warn("ignored a message", "reason", reason, "error", err)
	m.Ack()
}

// audit records what was decided about a message, and whether it has changed anything; spec is nil if it is
// not known.
func (s *Session) audit(m transport.Message, spec *wire.Spec, verdict, reason string, effect bool) {
	source, cluster, _ := wire.TopicSender(m.Topic)
	r := audit.Record{
		Event: audit.Receive, Verdict: verdict, Effect: effect, Reason: reason, Identity: string(source), Topic: m.Topic, Source: source, Cluster: cluster,
	}
	if spec != nil {
		r.Work, r.UID, r.Generation, r.Digest = spec.Meta.Name, spec.UID, spec.Generation, wire.ContentHashOf(m.Event)
	}
	s.config.Audit.Write(r)
}

// ackWhenHeld returns the callback that acknowledges m once its effect is held.
func ackWhenHeld(m transport.Message) func(error) {
	return func(err error) {
		if err == nil {
			m.Ack()
		}
	}
}

func workLogger(logger *slog.Logger, spec *wire.Spec) *slog.Logger {
	return logger.With("work", spec.Meta.Name, "uid", spec.UID)
}
