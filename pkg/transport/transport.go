// Package transport carries CloudEvents between sources and agents over a broker, and restores lost
// connections to it.
//
// A [Transport] runs once with a [Handler], and reconnects until its context ends:
//
//	t, err := mqtt.New(mqtt.Config{...})
//	...
//	err = t.Run(ctx, transport.Handler{
//		Subscriptions: topics.Subscriptions(),
//		Connected:     func(ctx context.Context, c transport.Connection) { ... resync ... },
//		Received:      func(ctx context.Context, m transport.Message) { ... store it ...; m.Ack() },
//	})
//
// Package mqtt implements it for MQTT 5 brokers, package memory within a process, for tests of
// packages that use a transport. Both pass the tests of package transporttest.
package transport

import (
	"context"
	"errors"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// Transport publishes and receives events at least once, in order per topic and publisher. All
// methods are safe for concurrent use.
type Transport interface {
	// Run connects, subscribes and delivers messages until ctx ends, and reconnects when the
	// connection is lost. It returns nil when ctx ends, after it has disconnected and its
	// goroutines and all calls of the handler have ended. A broker that cannot be reached, or that
	// refuses the connection, is not an error: Run logs the reason and retries. It returns an error
	// only if a retry cannot succeed. Run must be called once.
	Run(ctx context.Context, h Handler) error

	// Publish sends e to topic and returns nil once the broker has acknowledged it. It neither
	// queues nor waits for a connection: without one it returns ErrNotConnected. If the connection
	// is lost meanwhile, it returns an error, and the event may or may not have been delivered: the
	// caller must publish it again after the next Connected. It returns *TooLargeError for an event
	// that exceeds the broker's limit, and ErrNotAuthorized if the broker's ACL refuses the topic;
	// a retry cannot succeed in both cases. Concurrent calls are sent in parallel, up to the
	// broker's receive maximum.
	Publish(ctx context.Context, topic string, e cloudevents.Event) error

	// Limit returns the maximum packet size in bytes that the broker has announced, 0 if it
	// announced none or there was no connection yet.
	Limit() int
}

// SubscriberReporter is a Transport whose broker may say that an event had no subscriber.
type SubscriberReporter interface {
	// PublishReporting is [Transport].Publish. It also reports whether the broker took the event and
	// said that no client subscribes to topic. A broker does not have to say so.
	PublishReporting(ctx context.Context, topic string, e cloudevents.Event) (nobody bool, err error)
}

// Subscriber is a Transport that can subscribe to filters that it can do without.
type Subscriber interface {
	// Subscribe subscribes to filter, one of [Handler].Optional, on the current connection: messages
	// are received by [Handler].Received, perhaps later ones that were published while there was no connection. It
	// must be called again on each connection. It returns ErrNotConnected without a connection or if
	// the connection is lost meanwhile, and the broker's reason if it refuses the filter. A broker may
	// end the connection then.
	Subscribe(ctx context.Context, filter string) error
}

// FailureReporter is a Transport that says why it has no connection.
type FailureReporter interface {
	// Failure returns why the connection was lost or could not be made, the newest of it; nil if there
	// is a connection, or no attempt has failed yet.
	Failure() error
}

// Handler contains the callbacks of a transport.
type Handler struct {
	// Subscriptions are the topic filters to subscribe to on each connect. Messages on other topics,
	// which a session has from a client with another configuration, are dropped.
	Subscriptions []string
	// Optional are the filters that [Subscriber].Subscribe may be called with, or that match those.
	Optional []string

	// Will returns the event that the broker publishes to topic when the connection is lost. It is
	// called before each connect and must not block. The event is not published when Run ends
	// without an error. Optional.
	Will func() (topic string, e cloudevents.Event)

	// Connected is called in its own goroutine after each connect, once all subscriptions are
	// granted. ctx ends when the connection is lost; the transport waits for the call to return
	// before it reports the loss. Optional.
	Connected func(ctx context.Context, c Connection)

	// Received is called for each message, in the order of arrival, and not concurrently. It must
	// return quickly, since no other message is received meanwhile. ctx is the context of Run.
	// Messages that the broker kept in the session may be received before Connected is called.
	// Required.
	Received func(ctx context.Context, m Message)

	// Lost is called once for each connection that Connected was called for, with the reason, when
	// the connection is lost or Run ends, and Connected has returned. It must not block. Optional.
	Lost func(reason error)
}

// Connection describes a new connection.
type Connection struct {
	// Resumed reports whether the broker has kept the session and the messages published meanwhile.
	Resumed bool
	// Limit is the maximum packet size in bytes, see [Transport].Limit.
	Limit int
}

// Message is a received event.
type Message struct {
	// Topic is the topic that the event was published to.
	Topic string
	// Event is the event. It is invalid if Err is set.
	Event cloudevents.Event
	// Err is the reason why the message is not a CloudEvent. Such a message must be acknowledged
	// too.
	Err error
	// Ack acknowledges the message, so that the broker does not deliver it again. It must be called
	// once, from any goroutine, and does not block. Messages that are not acknowledged when the
	// connection is lost are delivered again on the next one; Ack of the first copy then does
	// nothing. A message that is never acknowledged blocks those after it once the receive window
	// is full.
	Ack func()
}

// ErrNotConnected is returned by Publish without a connection, and if the connection is lost before
// the broker has acknowledged the event, which then may or may not have been delivered.
var ErrNotConnected = errors.New("not connected to the broker")

// ErrNotAuthorized is returned by Publish if the broker's access rules refuse the topic.
var ErrNotAuthorized = errors.New("the broker does not authorise this client to publish to the topic")

// ErrOutdated is returned by Publish of a revocation list if the broker has a newer one.
var ErrOutdated = errors.New("the broker has a newer revocation list")

// TooLargeError is returned by Publish for an event that exceeds the broker's maximum packet size,
// or has an attribute that exceeds the maximum of MQTT. Nothing was sent.
type TooLargeError struct {
	// Attribute is the name of the attribute that is too long, empty if the event as a whole is too
	// large.
	Attribute string
	// Size and Limit of the packet or the attribute, in bytes.
	Size, Limit int
}

// Error returns a message with both sizes.
func (e *TooLargeError) Error() string {
	if e.Attribute != "" {
		return fmt.Sprintf("event attribute %s of %d bytes exceeds the %d bytes that MQTT can carry", e.Attribute, e.Size, e.Limit)
	}
	return fmt.Sprintf("event of %d bytes exceeds the broker's maximum packet size of %d bytes", e.Size, e.Limit)
}
