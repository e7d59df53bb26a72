package tracing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func newRecorder(sampler sdktrace.Sampler) (*Tracer, *tracetest.SpanRecorder) {
	recorder := tracetest.NewSpanRecorder()
	return New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sampler))), recorder
}

var work = Work{Name: "web", UID: "1", Source: "hub1", Cluster: "c1", Generation: 2}

// What every event of a work calls costs nothing without a provider.
func TestOffAllocatesNothing(t *testing.T) {
	tracer := New(nil)
	changes := NewChanges[string](tracer)
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { step(ctx, tracer, changes) }); n != 0 {
		t.Errorf("a step without tracing makes %v allocations, want 0", n)
	}
}

func BenchmarkOff(b *testing.B) {
	changes := NewChanges[string](nil)
	b.ReportAllocs()
	for b.Loop() {
		step(b.Context(), nil, changes)
	}
}

// step is what a change costs at a source and at an agent.
func step(ctx context.Context, tracer *Tracer, changes *Changes[string]) {
	changes.Seen("k", 1, trace.SpanContext{})
	change := changes.Get("k")
	span := tracer.Publish(tracer.Root(change, work), nil, Message{Topic: "t"}, work)
	_, _ = span.Header()
	span.End("")
	changes.Done("k", change)
	span = tracer.Receive(trace.SpanContext{}, Message{Topic: "t"}, work)
	added := changes.Add("k", 1, span.Context())
	_, attempt := tracer.Attempt(ctx, changes.Get("k"), "reconcile", work)
	_ = changes.Get("k").Current()
	attempt.End("")
	changes.Withdraw("k", added)
	changes.Return("k", changes.Take("k"))
	span = tracer.Route(trace.SpanContext{}, Message{Topic: "t"})
	span.End("")
	_, request := tracer.Request(ctx, "GET", "get", "configmaps", "host", "/path")
	request.Answered(200)
	request.End("")
}

func TestHeader(t *testing.T) {
	tracer, _ := newRecorder(sdktrace.AlwaysSample())
	span := tracer.Begin(trace.SpanContext{}, nil, time.Now(), work)
	traceparent, tracestate := span.Header()
	parsed := Parse(traceparent, tracestate)
	if parsed.SpanID() != span.Context().SpanID() || parsed.TraceID() != span.Context().TraceID() || !parsed.IsSampled() || !parsed.IsRemote() {
		t.Errorf("traceparent %q is %+v, want %+v", traceparent, parsed, span.Context())
	}
	dropped, _ := newRecorder(sdktrace.NeverSample())
	if traceparent, _ := dropped.Begin(trace.SpanContext{}, nil, time.Now(), work).Header(); traceparent != "" {
		t.Errorf("a span that is not recorded is continued by %q", traceparent)
	}
	if s := dropped.Publish(dropped.Begin(trace.SpanContext{}, nil, time.Now(), work).Context(), nil, Message{}, work); s.span != nil {
		t.Error("a change that is not recorded has a span for its publish")
	}
}

func TestParse(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		parent, state string
		valid         bool
	}{
		{good, "", true},
		{good, "vendor=1", true},
		{good, "no state", true}, // W3C: a tracestate that cannot be read is dropped
		{good, strings.Repeat("x", 513), false},
		{"", "vendor=1", false},
		{good[:54], "", false},
		{strings.ToUpper(good), "", false},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", "", false},
		{strings.Repeat("0", 1000), "", false},
	} {
		if got := Parse(c.parent, c.state).IsValid(); got != c.valid {
			t.Errorf("Parse(%.60q, %.20q) is valid: %t, want %t", c.parent, c.state, got, c.valid)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1,other=2")
	f.Add("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "")
	f.Add("ff-", "=,=")
	tracer, _ := newRecorder(sdktrace.AlwaysSample())
	f.Fuzz(func(t *testing.T, parent, state string) {
		context := Parse(parent, state)
		if !context.IsValid() && context.IsSampled() {
			t.Error("a context that is not valid is recorded")
		}
		span := tracer.Receive(context, Message{Topic: "sources/hub1/clusters/c1/sourceevents"}, work)
		if span.span != nil && span.Context().TraceID() != context.TraceID() {
			t.Error("the span is of another trace")
		}
		header, _ := span.Header()
		if len(header) > maxHeader {
			t.Errorf("a header of %d bytes", len(header))
		}
		span.End("")
	})
}

func TestTemplate(t *testing.T) {
	for topic, want := range map[string]string{
		"sources/hub1/clusters/c1/sourceevents": "sources/{id}/clusters/{id}/sourceevents",
		"sources/hub1/sourcebroadcast":          "sources/{id}/sourcebroadcast",
		"clusters/c1/agentbroadcast":            "clusters/{id}/agentbroadcast",
		"":                                      "",
		"a/b":                                   "a/b",
	} {
		if got := template(topic); got != want {
			t.Errorf("template(%q) = %q, want %q", topic, got, want)
		}
	}
}

// The newest change counts, and is linked to what it replaces.
func TestNewestChangeWins(t *testing.T) {
	tracer, recorder := newRecorder(sdktrace.AlwaysSample())
	changes := NewChanges[string](tracer)
	var parents []trace.SpanContext
	for generation := range int64(maxLinks + 3) {
		span := tracer.Begin(trace.SpanContext{}, nil, time.Now(), work)
		span.End("")
		parents = append(parents, span.Context())
		changes.Add("k", generation, span.Context())
	}
	newest := changes.Get("k")
	if newest.Generation != maxLinks+2 || newest.Parent.SpanID() != parents[maxLinks+2].SpanID() {
		t.Fatalf("the change is %+v, want the newest", newest)
	}
	_, span := tracer.Attempt(t.Context(), newest, "reconcile", work)
	span.End(FailedIf(errors.New("secret value")))
	ended := recorder.Ended()
	last := ended[len(ended)-1]
	var linked []string
	for _, l := range last.Links() {
		linked = append(linked, l.SpanContext.SpanID().String())
	}
	var want []string
	for _, p := range parents[2 : maxLinks+2] {
		want = append(want, p.SpanID().String())
	}
	if !slices.Equal(linked, want) {
		t.Errorf("links %v, want the last %d that were replaced, %v", linked, maxLinks, want)
	}
	if last.Parent().SpanID() != newest.Parent.SpanID() {
		t.Error("the parent is not the newest")
	}
	if text := fmt.Sprintf("%+v %+v %+v", last.Attributes(), last.Events(), last.Status()); strings.Contains(text, "secret") {
		t.Errorf("the span has the text of an error: %s", text)
	}
}

func TestWithdrawnChangeChangesNothing(t *testing.T) {
	tracer, _ := newRecorder(sdktrace.AlwaysSample())
	changes := NewChanges[string](tracer)
	context := tracer.Begin(trace.SpanContext{}, nil, time.Now(), work).Context()
	first := changes.Add("k", 1, context)
	repeated := changes.Add("k", 1, context)
	changes.Withdraw("k", repeated)
	if got := changes.Get("k"); got != first {
		t.Errorf("after a repetition the change is %p, want the first, %p", got, first)
	}
	changes.Done("k", repeated)
	changes.Done("k", first)
	if changes.Get("k") != nil {
		t.Error("a change that is done is still there")
	}
}

func TestReturnedChangeIsLinkedToANewerOne(t *testing.T) {
	tracer, _ := newRecorder(sdktrace.AlwaysSample())
	changes := NewChanges[string](tracer)
	context := tracer.Begin(trace.SpanContext{}, nil, time.Now(), work).Context()
	changes.Add("k", 1, context)
	failed := changes.Take("k")
	changes.Return("k", failed)
	if changes.Get("k") != failed {
		t.Fatal("a change whose step failed is lost")
	}
	failed = changes.Take("k")
	newer := changes.Add("k", 2, tracer.Begin(trace.SpanContext{}, nil, time.Now(), work).Context())
	changes.Return("k", failed)
	if len(newer.Links) != 1 || newer.Links[0].SpanID() != context.SpanID() || changes.Get("k") != newer {
		t.Errorf("the newer change has links %v", newer.Links)
	}
}

func TestRootBeginsOnce(t *testing.T) {
	tracer, recorder := newRecorder(sdktrace.AlwaysSample())
	changes := NewChanges[string](tracer)
	caller := tracer.Begin(trace.SpanContext{}, nil, time.Now(), work)
	changes.Seen("k", 1, caller.Context())
	changes.Seen("k", 1, trace.SpanContext{}) // a status
	change := changes.Get("k")
	first, again := tracer.Root(change, work), tracer.Root(change, work)
	if !first.IsValid() || first.SpanID() != again.SpanID() || first.TraceID() != caller.Context().TraceID() {
		t.Errorf("roots %v and %v, want one of trace %v", first, again, caller.Context().TraceID())
	}
	changes.Seen("k", 2, trace.SpanContext{})
	if ended := recorder.Ended(); len(ended) != 1 || ended[0].SpanContext().SpanID() != first.SpanID() {
		t.Errorf("%d spans have ended, want that of the change that was replaced", len(ended))
	}
	if next := changes.Get("k"); len(next.Links) != 1 || next.Links[0].SpanID() != first.SpanID() {
		t.Errorf("links %v, want the change before", next.Links)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	tracer, recorder := newRecorder(sdktrace.AlwaysSample())
	changes := NewChanges[string](tracer)
	added := changes.Add("k", 1, tracer.Begin(trace.SpanContext{}, nil, time.Now(), work).Context())
	for range maxAttempts + 5 {
		_, span := tracer.Attempt(t.Context(), added, "reconcile", work)
		span.End("failed")
	}
	if n := len(recorder.Ended()); n != maxAttempts {
		t.Errorf("%d spans of attempts, want %d", n, maxAttempts)
	}
}
