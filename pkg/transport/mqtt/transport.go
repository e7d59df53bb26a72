// Package mqtt implements the transport for MQTT 5 brokers (docs/protocol.md, Transport) with
// autopaho of paho.golang and its CloudEvents binding.
//
//	broker, err := config.Load(path)
//	...
//	t, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: "cluster1-agent", Logger: log})
//	...
//	err = t.Run(ctx, transport.Handler{...})
//
// The broker keeps the session of the client id and delivers queued messages when the client
// reconnects. The client keeps no publishes: see session.
//
// The client reconnects within 100 ms, then with a backoff of up to 30 s. It reads the certificate
// and password files on each connect, and reconnects when the certificate files change.
//
// A message is acknowledged as soon as its Ack is called, in the order of arrival. paho's tracker
// is not used, since it checks every 50 ms, and Mosquitto allows 20 unacknowledged messages.
package mqtt

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	pahosession "github.com/eclipse/paho.golang/paho/session"

	"github.com/workwire/workwire/pkg/transport"
)

// confirmTimeout is how long the broker may take to acknowledge a publish.
const confirmTimeout = 2 * time.Minute

// Transport connects to an MQTT broker, see [New].
type Transport struct {
	cfg     Config
	metrics *metrics

	started atomic.Bool
	current atomic.Pointer[connection] // between Connected and Lost, else nil
	limit   atomic.Int64
}

var (
	_ transport.Transport  = (*Transport)(nil)
	_ transport.Subscriber = (*Transport)(nil)
)

// New returns a transport, which [Transport.Run] runs. It reads the certificate files to validate
// them. Its error names every invalid field of cfg.
func New(cfg Config) (*Transport, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Transport{cfg: cfg, metrics: m}, nil
}

// Limit returns the maximum packet size of the broker; see [transport.Transport].
func (t *Transport) Limit() int { return int(t.limit.Load()) }

// Publish sends e to topic; see [transport.Transport]. It returns ErrNotConnected except between
// Connected and Lost. It also returns *transport.TooLargeError for an attribute of more than 65535
// bytes, the maximum of MQTT. The event may be delivered even if ctx ends before Publish returns.
func (t *Transport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	_, err := t.PublishReporting(ctx, topic, e)
	return err
}

// PublishReporting is Publish, and reports whether the broker answered that no client subscribes to
// topic; see [transport.SubscriberReporter].
func (t *Transport) PublishReporting(ctx context.Context, topic string, e cloudevents.Event) (nobody bool, err error) {
	start := time.Now()
	size, nobody, err := t.publish(ctx, topic, &e)
	t.metrics.publish(time.Since(start), size, err)
	if err != nil {
		return false, fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nobody, nil
}

func (t *Transport) publish(ctx context.Context, topic string, e *cloudevents.Event) (size int, nobody bool, err error) {
	packet, err := encode(ctx, topic, e, min(*t.cfg.Broker.PubQoS, 1))
	if err != nil {
		return 0, false, err
	}
	size = packetSize(packet)
	c := t.current.Load()
	if c == nil {
		return size, false, transport.ErrNotConnected
	}
	if c.limit > 0 && size > c.limit {
		return size, false, &transport.TooLargeError{Size: size, Limit: c.limit}
	}
	answer, err := c.manager.Publish(ctx, packet)
	if err == nil {
		return size, answer != nil && answer.ReasonCode == packets.PubackNoMatchingSubscribers, nil
	}
	return size, false, publishError(ctx, c, answer, err)
}

// publishError returns the error of a publish on c that failed with err; answer is the broker's, nil
// if it sent none.
func publishError(ctx context.Context, c *connection, answer *paho.PublishResponse, err error) error {
	switch {
	case answer != nil && answer.ReasonCode == packets.PubackNotAuthorized:
		return transport.ErrNotAuthorized
	case answer != nil:
		return &refusedError{answer.ReasonCode, answer.Properties.ReasonString}
	case ctx.Err() != nil:
		return ctx.Err()
	case c.session.isLost():
		return fmt.Errorf("%w: the connection was lost before the broker acknowledged the event: %w", transport.ErrNotConnected, c.session.lossReason())
	case errors.Is(err, autopaho.ConnectionDownError), errors.Is(err, pahosession.ErrNoConnection):
		return transport.ErrNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the broker did not acknowledge the event within %s", confirmTimeout)
	default:
		return err
	}
}
