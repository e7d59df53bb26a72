package wire

import (
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Extensions of the CloudEvents extension "Distributed Tracing".
const (
	extTraceParent = "traceparent"
	extTraceState  = "tracestate"
)

// maxTraceContext is the longest extension that TraceContextOf returns, in bytes.
const maxTraceContext = 512

// SetTraceContext sets the extensions that continue a trace (docs/protocol.md, Trace context), each
// unless it is empty.
func SetTraceContext(e *cloudevents.Event, traceparent, tracestate string) {
	setText(e, extTraceParent, traceparent)
	setText(e, extTraceState, tracestate)
}

// TraceContextOf returns the extensions that continue a trace; both are empty if e has none, or one is
// longer than 512 bytes. They are not covered by a signature: nothing but traces may depend on them.
func TraceContextOf(e cloudevents.Event) (traceparent, tracestate string) {
	x := extensions(e.Extensions())
	traceparent, tracestate = x.text(extTraceParent), x.text(extTraceState)
	if len(traceparent) > maxTraceContext || len(tracestate) > maxTraceContext {
		return "", ""
	}
	return traceparent, tracestate
}
