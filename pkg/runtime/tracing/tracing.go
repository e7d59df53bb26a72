// Package tracing makes the OpenTelemetry spans of a change of a work, from the source that sees the
// spec to the source that stores the status (docs/tracing.md).
//
//	tracer := tracing.New(provider) // nil without a provider: all below then does nothing
//	span := tracer.Publish(parent, nil, tracing.Message{Topic: topic}, work)
//	traceparent, tracestate := span.Header()
//	...
//	span.End(err)
//
// The context of a change is carried from one step to the next by [Changes], and from one program to
// the next by the extensions traceparent and tracestate (docs/protocol.md, Trace context). Nothing is
// kept over a restart: what continues after it has no trace.
//
// There is no global state: providers are passed in, and only package otlp below, which commands use,
// exports spans. Without a provider, nothing here allocates.
package tracing

import (
	"context"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/workwire/workwire/pkg/runtime/version"
)

// scope names what makes the spans.
const scope = "github.com/workwire/workwire/pkg/runtime/tracing"

// Attributes of spans beside those of OpenTelemetry's conventions. None has a value of an object.
const (
	workName       = attribute.Key("workwire.work.name")
	workUID        = attribute.Key("workwire.work.uid")
	workGeneration = attribute.Key("workwire.work.generation")
	workSource     = attribute.Key("workwire.source")
)

// Tracer makes spans. A nil *Tracer makes none. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New returns a Tracer that makes spans with provider; nil if provider is nil.
func New(provider trace.TracerProvider) *Tracer {
	if provider == nil {
		return nil
	}
	return &Tracer{tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(version.Version), trace.WithSchemaURL(semconv.SchemaURL))}
}

// Work is the work that a span is about. Empty fields are left out.
type Work struct {
	Name, UID, Source, Cluster string
	Generation                 int64
}

func (w *Work) attributes() []attribute.KeyValue {
	all := make([]attribute.KeyValue, 0, 16)
	for key, value := range map[attribute.Key]string{workName: w.Name, workUID: w.UID, workSource: w.Source, semconv.K8SClusterNameKey: w.Cluster} {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	if w.Generation != 0 {
		all = append(all, workGeneration.Int64(w.Generation))
	}
	return all
}

// Message is the message that a span is about.
type Message struct {
	// Topic of the message.
	Topic string
	// ID and Type are the event's attributes; empty if the sender of the span does not know them.
	ID, Type string
	// Client is the id of the MQTT client that makes the span; it may be empty.
	Client string
	// Size of the payload in bytes.
	Size int
}

func (m *Message) attributes(all []attribute.KeyValue, operation string, kind attribute.KeyValue) []attribute.KeyValue {
	all = append(all, semconv.MessagingSystemKey.String("mqtt"), semconv.MessagingOperationName(operation), kind,
		semconv.MessagingDestinationName(m.Topic), semconv.MessagingDestinationTemplate(template(m.Topic)), semconv.MessagingMessageBodySize(m.Size))
	for key, value := range map[attribute.Key]string{
		semconv.MessagingMessageIDKey: m.ID, semconv.CloudEventsEventTypeKey: m.Type, semconv.MessagingClientIDKey: m.Client,
	} {
		if value != "" {
			all = append(all, key.String(value))
		}
	}
	return all
}

// template returns topic with {id} in the places of ids, so that few span names exist
// (docs/protocol.md, Topics).
func template(topic string) string {
	parts := strings.Split(topic, "/")
	for i := 1; i < len(parts) && i < 4; i += 2 {
		if i < len(parts)-1 {
			parts[i] = "{id}"
		}
	}
	return strings.Join(parts, "/")
}

// Span is a span. The zero Span does nothing.
type Span struct{ span trace.Span }

// Context returns the context of s, which is not valid for the zero Span.
func (s Span) Context() trace.SpanContext {
	if s.span == nil {
		return trace.SpanContext{}
	}
	return s.span.SpanContext()
}

// Header returns the extensions of an event that continue s; both are empty unless s is recorded.
func (s Span) Header() (traceparent, tracestate string) {
	if s.span == nil || !s.span.SpanContext().IsSampled() {
		return "", ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), s.span.SpanContext()), carrier)
	return carrier["traceparent"], carrier["tracestate"]
}

// End ends s. The text of err is not recorded, because it may have values of objects: errType, a
// short constant, says what failed, and is empty for success.
func (s Span) End(errType string) {
	if s.span == nil {
		return
	}
	if errType != "" {
		s.span.SetAttributes(semconv.ErrorTypeKey.String(errType))
		s.span.SetStatus(codes.Error, errType)
	}
	s.span.End()
}

// FailedIf returns the error type for a step that failed with err, "" if err is nil.
func FailedIf(err error) string {
	if err == nil {
		return ""
	}
	return "failed"
}

// maxHeader is the longest traceparent or tracestate that is read, in bytes; W3C Trace Context asks
// for 512 of tracestate.
const maxHeader = 512

// Parse returns the context that traceparent and tracestate name, which is not valid if there is
// none, or they are not as W3C Trace Context demands.
func Parse(traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" || len(traceparent) > maxHeader || len(tracestate) > maxHeader {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// Publish begins the span of a message that is sent because of parent, and of links, whose results it
// replaces. It does nothing if parent is not recorded.
func (t *Tracer) Publish(parent trace.SpanContext, links []trace.SpanContext, m Message, w Work) Span {
	if t == nil || !parent.IsSampled() {
		return Span{}
	}
	return t.start(parent, "publish "+template(m.Topic), linked(links), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(m.attributes(w.attributes(), "publish", semconv.MessagingOperationTypeSend)...))
}

// Receive begins the span of a message that has arrived with parent. It does nothing if parent is not
// recorded.
func (t *Tracer) Receive(parent trace.SpanContext, m Message, w Work) Span {
	if t == nil || !parent.IsSampled() {
		return Span{}
	}
	return t.start(parent, "process "+template(m.Topic), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(m.attributes(w.attributes(), "process", semconv.MessagingOperationTypeProcess)...))
}

// Route begins the span of a message that a broker accepts and queues. It does nothing if parent is
// not recorded.
func (t *Tracer) Route(parent trace.SpanContext, m Message) Span {
	if t == nil || !parent.IsSampled() {
		return Span{}
	}
	none := Work{}
	return t.start(parent, "route "+template(m.Topic), trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(m.attributes(none.attributes(), "route", semconv.MessagingOperationTypeReceive)...))
}

// Step begins the span of a step with name within a program, and returns ctx with it. It does nothing
// if parent is not recorded.
func (t *Tracer) Step(ctx context.Context, parent trace.SpanContext, links []trace.SpanContext, name string, w Work) (context.Context, Span) {
	if t == nil || !parent.IsSampled() {
		return ctx, Span{}
	}
	span := t.start(parent, name, linked(links), trace.WithAttributes(w.attributes()...))
	return trace.ContextWithSpan(ctx, span.span), span
}

// Begin begins the span of a whole change at its source, which has seen it at since. It continues
// parent if that is valid, and is the root of a trace otherwise.
func (t *Tracer) Begin(parent trace.SpanContext, links []trace.SpanContext, since time.Time, w Work) Span {
	if t == nil {
		return Span{}
	}
	return t.start(parent, "deliver ManifestWork", linked(links), trace.WithTimestamp(since), trace.WithAttributes(w.attributes()...))
}

// Request begins the span of a request to an API server, a child of the span in ctx, and returns ctx
// with it. It does nothing unless that is recorded.
func (t *Tracer) Request(ctx context.Context, method, verb, resource, host, path string) (context.Context, Span) {
	if t == nil || !Recorded(ctx) {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(ctx, verb+" "+resource, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		semconv.HTTPRequestMethodKey.String(method), semconv.ServerAddress(host), semconv.URLPath(path)))
	return ctx, Span{span}
}

// Answered records the status code of the answer to a request.
func (s Span) Answered(code int) {
	if s.span != nil {
		s.span.SetAttributes(semconv.HTTPResponseStatusCode(code))
	}
}

func (t *Tracer) start(parent trace.SpanContext, name string, options ...trace.SpanStartOption) Span {
	ctx := context.Background()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	_, span := t.tracer.Start(ctx, name, options...)
	return Span{span}
}

// linked returns the option that links all contexts that are valid.
func linked(all []trace.SpanContext) trace.SpanStartOption {
	var links []trace.Link
	for _, context := range all {
		if context.IsValid() {
			links = append(links, trace.Link{SpanContext: context})
		}
	}
	return trace.WithLinks(links...)
}

// Recorded reports whether ctx has a span that is recorded.
func Recorded(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }
