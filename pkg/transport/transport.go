// Package transport carries CloudEvents between sources and agents over a
// broker that both are connected to, and keeps that connection through whatever
// happens to it.
//
// A [Transport] is run once with a [Handler] and reconnects by itself until its
// context ends:
//
//	link, err := mqtt.New(mqtt.Config{...})
//	...
//	err = link.Run(ctx, transport.Handler{
//		Subscriptions: topics.Subscriptions(),
//		Connected:     func(ctx context.Context, c transport.Connection) { ... resync ... },
//		Received:      func(ctx context.Context, m transport.Message) { ... hold it ...; m.Ack() },
//	})
//
// Package mqtt is the implementation for MQTT 5 brokers, package memory one
// inside a process, for tests of what stands on a transport. Both pass the suite
// in package transporttest.
package transport

import (
	"context"
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Transport publishes and receives events at least once, in order per topic and
// publisher. All methods may be called at the same time from any goroutine.
type Transport interface {
	// Run connects, subscribes and delivers until ctx ends, reconnecting
	// whenever the connection is lost; it returns nil then, after a clean
	// disconnect and after its goroutines and the handler's calls have ended. A
	// broker that can not be reached, or that refuses, is no error: Run goes on
	// trying, and logs why. It fails at once only on what no retry can mend. Run
	// must be called once.
	Run(ctx context.Context, h Handler) error

	// Publish sends e to topic and returns nil once the broker has taken
	// responsibility for it. It never queues and never waits for a connection:
	// without one it fails with ErrNotConnected. When the connection is lost
	// meanwhile, it fails, and the event may or may not have been delivered:
	// whoever needs it delivered publishes again after the next Connected. An
	// event that exceeds what the broker takes fails with *TooLargeError, one
	// that the broker's ACL refuses with ErrNotAuthorized; neither is mended by
	// repeating. Calls made at the same time are carried in parallel, bounded by
	// the broker's receive maximum.
	Publish(ctx context.Context, topic string, e cloudevents.Event) error

	// Limit is the greatest packet in bytes that the broker has announced it
	// takes, 0 when it announced none or there was no connection yet.
	Limit() int
}

// Handler is what a transport calls.
type Handler struct {
	// Subscriptions are the topic filters to subscribe to at every connect.
	Subscriptions []string

	// Will, if it is set, is called before each connect for an event that the
	// broker is to publish to a topic when that connection is lost. After a clean
	// end of Run it is not published: who wants to say good bye does so before. It
	// must return at once.
	Will func() (topic string, e cloudevents.Event)

	// Connected is called on a goroutine of its own after each connect, once
	// every subscription is granted. ctx ends when that connection is lost; the
	// transport waits for the call to return before it reports another one. It
	// may be nil.
	Connected func(ctx context.Context, c Connection)

	// Received is called for each message, one at a time, in the order of
	// arrival. It must return soon: nothing else is received meanwhile. ctx is
	// that of Run. Messages may come before Connected is called, when the broker
	// has kept them in the session.
	Received func(ctx context.Context, m Message)

	// Lost is called when a connection that Connected was called for is gone,
	// with the reason, once for each of them, at the end of Run as well; it must
	// return at once. It may be nil.
	Lost func(reason error)
}

// Connection describes a connection at its start.
type Connection struct {
	// Resumed reports that the broker has kept the session, and so what was
	// published meanwhile.
	Resumed bool
	// Limit is as [Transport].Limit.
	Limit int
}

// Message is an event received.
type Message struct {
	// Topic it was published to.
	Topic string
	// Event is the event; it is not valid when Err is set.
	Event cloudevents.Event
	// Err says why the message is no CloudEvent. Such a message must be
	// acknowledged as well.
	Err error
	// Ack tells the broker that the message is held and need not be delivered
	// again. It may be called from any goroutine, must be called once, and does
	// not block. A message that was not acknowledged when the connection was lost
	// comes again with the next one; acknowledging the first copy then does
	// nothing. One that is never acknowledged holds up those behind it when the
	// window of the connection is full.
	Ack func()
}

// ErrNotConnected is what Publish fails with while there is no connection, and
// when the connection is lost before the broker has confirmed; in that case the
// event may or may not have been delivered.
var ErrNotConnected = errors.New("not connected to the broker")

// ErrNotAuthorized is what Publish fails with when the broker's access rules
// refuse the topic.
var ErrNotAuthorized = errors.New("the broker does not authorise this client to publish to the topic")

// TooLargeError is what Publish fails with on an event that exceeds the packet
// size that the broker takes, or has an attribute longer than any broker can
// take. Nothing was sent.
type TooLargeError struct {
	// Attribute is the name of the attribute that is too long, empty when it is
	// the event as a whole.
	Attribute string
	// Size of the packet or attribute and its Limit, in bytes.
	Size, Limit int
}

// Error gives both sizes.
func (e *TooLargeError) Error() string {
	if e.Attribute != "" {
		return fmt.Sprintf("event attribute %s of %d bytes exceeds the %d bytes that MQTT can carry", e.Attribute, e.Size, e.Limit)
	}
	return fmt.Sprintf("event of %d bytes exceeds the broker's maximum packet size of %d bytes", e.Size, e.Limit)
}
