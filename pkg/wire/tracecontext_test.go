package wire

import (
	"strings"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceContext(t *testing.T) {
	e := cloudevents.New()
	if traceparent, tracestate := TraceContextOf(e); traceparent != "" || tracestate != "" {
		t.Errorf("an event without a trace has %q and %q", traceparent, tracestate)
	}
	SetTraceContext(&e, "", "")
	if len(e.Extensions()) != 0 {
		t.Errorf("no trace sets %v", e.Extensions())
	}
	SetTraceContext(&e, parent, "vendor=1")
	if traceparent, tracestate := TraceContextOf(e); traceparent != parent || tracestate != "vendor=1" {
		t.Errorf("got %q and %q", traceparent, tracestate)
	}
	SetTraceContext(&e, parent, strings.Repeat("x", 513))
	if traceparent, _ := TraceContextOf(e); traceparent != "" {
		t.Errorf("an event whose tracestate is too long has %q", traceparent)
	}
}

// A signature covers no trace context: whoever changes it breaks traces only.
func TestTraceContextIsNotSigned(t *testing.T) {
	e := cloudevents.New()
	before := SignedBytes(e, "k", e.Time())
	SetTraceContext(&e, parent, "vendor=1")
	if after := SignedBytes(e, "k", e.Time()); string(before) != string(after) {
		t.Error("the trace context is signed")
	}
}

func FuzzTraceContext(f *testing.F) {
	f.Add(parent, "vendor=1")
	f.Add("\x00", "")
	f.Fuzz(func(t *testing.T, traceparent, tracestate string) {
		e := cloudevents.New()
		SetTraceContext(&e, traceparent, tracestate)
		if gotParent, gotState := TraceContextOf(e); len(gotParent) > maxTraceContext || len(gotState) > maxTraceContext {
			t.Errorf("%d and %d bytes", len(gotParent), len(gotState))
		}
	})
}
