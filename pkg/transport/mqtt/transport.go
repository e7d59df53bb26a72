// Package mqtt implements the transport for MQTT 5 brokers (docs/protocol.md, Transport) with
// paho.golang and its CloudEvents binding.
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
	"fmt"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

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
	failure atomic.Pointer[error] // nil while there is a connection
}

var (
	_ transport.Transport       = (*Transport)(nil)
	_ transport.Subscriber      = (*Transport)(nil)
	_ transport.FailureReporter = (*Transport)(nil)
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

// Failure returns why there is no connection; see [transport.FailureReporter].
func (t *Transport) Failure() error {
	if err := t.failure.Load(); err != nil {
		return *err
	}
	return nil
}

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
	c := t.current.Load()
	if c == nil {
		return 0, false, transport.ErrNotConnected
	}
	return c.publish(ctx, packet)
}

// Subscribe subscribes to one more filter on this connection; see [transport.Subscriber].
func (t *Transport) Subscribe(ctx context.Context, filter string) error {
	c := t.current.Load()
	if c == nil {
		return transport.ErrNotConnected
	}
	if !matchesAny(c.optional, filter) {
		return fmt.Errorf("subscribe to %s: it is none of the Optional filters of the handler, so its messages would be dropped", filter)
	}
	_, err := c.subscribe(ctx, t.subscriptionQoS(), filter)
	return err
}

// subscriptionQoS is the QoS of all subscriptions. RabbitMQ has a queue for each QoS, and that of QoS 0 is
// lost with its node, and the session with it for as long as the node is.
func (t *Transport) subscriptionQoS() byte { return min(*t.cfg.Broker.SubQoS, 1) }
