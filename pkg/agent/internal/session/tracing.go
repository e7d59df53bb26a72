package session

import (
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// traceSpec begins the span of a spec that has arrived, if its event continues a trace, and adds it to
// the changes to reconcile. It is called before a worker can see the spec.
func (s *Session) traceSpec(m transport.Message, spec *wire.Spec) (tracing.Span, *tracing.Change) {
	if s.config.Tracer == nil {
		return tracing.Span{}, nil
	}
	span := s.config.Tracer.Receive(tracing.Parse(wire.TraceContextOf(m.Event)),
		tracing.Message{Topic: m.Topic, ID: m.Event.ID(), Type: m.Event.Type(), Client: s.config.ClientID, Size: len(m.Event.Data())},
		tracing.Work{
			Name: spec.Meta.Name, UID: string(spec.UID), Source: string(spec.Source), Cluster: string(spec.Cluster), Generation: int64(spec.Generation),
		})
	return span, s.config.Changes.Add(inbox.Key{Source: spec.Source, UID: spec.UID}, int64(spec.Generation), span.Context())
}

// endTraceSpec ends the span of a spec. A spec that changed nothing is no change to reconcile.
func (s *Session) endTraceSpec(span tracing.Span, traced *tracing.Change, change inbox.Change) {
	if !change.Verdict.Changes() {
		s.config.Changes.Withdraw(change.Key, traced)
	}
	span.End("")
}
