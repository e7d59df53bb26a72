package broker

import (
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// User properties of a CloudEvent that continue a trace (docs/protocol.md, Trace context).
const (
	propertyTraceParent = "ce-traceparent"
	propertyTraceState  = "ce-tracestate"
)

// traceMessage begins the span of a message, if that continues a trace. The message is passed on as it
// came.
func (c *client) traceMessage(m *session.Message) tracing.Span {
	if c.server.tracer == nil {
		return tracing.Span{}
	}
	var traceparent, tracestate string
	for _, p := range m.User {
		switch p.Key {
		case propertyTraceParent:
			traceparent = p.Value
		case propertyTraceState:
			tracestate = p.Value
		}
	}
	return c.server.tracer.Route(tracing.Parse(traceparent, tracestate), tracing.Message{Topic: m.Topic, Client: c.sessionID, Size: len(m.Payload)})
}
