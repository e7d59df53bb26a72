package delivery

import (
	"context"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"go.opentelemetry.io/otel/trace"

	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// tracedSpec describes the work of spec in spans.
func tracedSpec(spec *wire.Spec) tracing.Work {
	return tracing.Work{
		Name: spec.Meta.Name, UID: string(spec.UID), Source: string(spec.Source), Cluster: string(spec.Cluster), Generation: int64(spec.Generation),
	}
}

func tracedStatus(s *wire.Status) tracing.Work {
	return tracing.Work{
		Name: s.Meta.Name, UID: string(s.UID), Source: string(s.Source), Cluster: string(s.Cluster), Generation: int64(s.Generation),
	}
}

func tracedMessage(topic string, e *cloudevents.Event) tracing.Message {
	return tracing.Message{Topic: topic, ID: e.ID(), Type: e.Type(), Size: len(e.Data())}
}

// changeOf returns the change that p publishes; nil if there is none, or if p was published before: what
// is repeated is no change.
func (e *Engine) changeOf(a *attempt, p plan) *tracing.Change {
	change := e.changes.Get(a.before.key)
	if change != nil && a.before.published == p.revision {
		e.changes.Done(a.before.key, change)
		return nil
	}
	return change
}

// tracePublish begins the span of the publish of spec, whose event continues it. It does nothing if
// change is not recorded.
func (e *Engine) tracePublish(change trace.SpanContext, topic string, event *cloudevents.Event, spec *wire.Spec) tracing.Span {
	if !change.IsSampled() {
		return tracing.Span{}
	}
	span := e.tracer.Publish(change, nil, tracedMessage(topic, event), tracedSpec(spec))
	traceparent, tracestate := span.Header()
	wire.SetTraceContext(event, traceparent, tracestate)
	return span
}

// traceStatus begins the span of a status that has arrived, if its event continues a trace, and adds it
// to what is to be stored.
func (e *Engine) traceStatus(m transport.Message, s *wire.Status) (tracing.Span, *tracing.Change) {
	if e.tracer == nil {
		return tracing.Span{}, nil
	}
	span := e.tracer.Receive(tracing.Parse(wire.TraceContextOf(m.Event)), tracedMessage(m.Topic, &m.Event), tracedStatus(s))
	return span, e.statuses.Add(workKey{uid: s.UID, cluster: s.Cluster}, int64(s.Generation), span.Context())
}

// endTraceStatus ends the span of a status with its verdict.
func (e *Engine) endTraceStatus(span tracing.Span, change *tracing.Change, s *wire.Status, v verdict) {
	if v == accepted {
		span.End("")
		return
	}
	e.statuses.Withdraw(workKey{uid: s.UID, cluster: s.Cluster}, change)
	span.End(string(v))
}

// traceStore begins the span of storing u, if that continues a trace. The change is for endTraceStore.
func (e *Engine) traceStore(ctx context.Context, k workKey, u *statusUpdate) (context.Context, tracing.Span, *tracing.Change) {
	if e.tracer == nil || u.status == nil {
		return ctx, tracing.Span{}, nil
	}
	change := e.statuses.Take(k)
	ctx, span := e.tracer.Attempt(ctx, change, "store status", tracedStatus(u.status))
	return ctx, span, change
}

func (e *Engine) endTraceStore(span tracing.Span, k workKey, change *tracing.Change, err error) {
	span.End(tracing.FailedIf(err))
	if err != nil {
		e.statuses.Return(k, change)
	}
}
