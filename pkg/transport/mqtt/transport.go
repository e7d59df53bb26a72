// Package mqtt carries events over an MQTT 5 broker (docs/protocol.md,
// Transport), by paho.golang's autopaho and the CloudEvents binding for it.
//
//	broker, err := config.Load(path)
//	...
//	link, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: "cluster1-agent", Logger: log})
//	...
//	err = link.Run(ctx, transport.Handler{...})
//
// The broker keeps the session of the client id: what is published while the
// client is away is delivered when it is back. Publishes, on the other hand,
// are not kept: one that the broker has not confirmed when the connection is
// lost has failed, and is not sent again behind the caller's back, where it
// might overtake something newer.
//
// The client reconnects within 100 ms, then ever slower up to once in 30 s,
// with the certificate and password files as they are then. When certificate
// files change while it is connected, it reconnects with the new ones.
//
// Messages are acknowledged as soon as their Ack is called, in the order that
// they came in: paho's own tracker, which looks every 50 ms, is not used.
// Brokers limit how many messages may wait for that, Mosquitto to 20.
package mqtt

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/autopaho"
	pahosession "github.com/eclipse/paho.golang/paho/session"

	"github.com/workwire/workwire/pkg/transport"
)

// confirmTimeout is how long the broker may take to confirm a publish.
const confirmTimeout = 2 * time.Minute

// reasonNotAuthorizedCode is the reason code of a publish that access rules refuse.
const reasonNotAuthorizedCode = 0x87

// Transport is a connection to an MQTT broker that is kept. Its zero value is
// of no use: see [New].
type Transport struct {
	cfg     Config
	metrics *metrics

	started atomic.Bool
	up      atomic.Pointer[link] // the link between its Connected and its Lost, else nil
	limit   atomic.Int64
}

var _ transport.Transport = (*Transport)(nil)

// New checks cfg and makes the transport, which [Transport.Run] then starts.
// The certificate files are read to check them. The error names every fault.
func New(cfg Config) (*Transport, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Transport{cfg: cfg, metrics: m}, nil
}

// Limit is the greatest packet in bytes that the broker takes; see
// [transport.Transport].
func (t *Transport) Limit() int { return int(t.limit.Load()) }

// Publish sends e to topic; see [transport.Transport]. It works between
// Connected and Lost. An attribute of more than 65535 bytes, which MQTT can not
// carry, fails with *transport.TooLargeError as well. Ending ctx does not take
// back what was sent already.
func (t *Transport) Publish(ctx context.Context, topic string, e cloudevents.Event) error {
	start := time.Now()
	size, err := t.publish(ctx, topic, &e)
	t.metrics.publish(time.Since(start), size, err)
	if err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

func (t *Transport) publish(ctx context.Context, topic string, e *cloudevents.Event) (size int, err error) {
	packet, err := encode(ctx, topic, e, carried(*t.cfg.Broker.PubQoS))
	if err != nil {
		return 0, err
	}
	size = packetSize(packet)
	l := t.up.Load()
	if l == nil {
		return size, transport.ErrNotConnected
	}
	if l.limit > 0 && size > l.limit {
		return size, &transport.TooLargeError{Size: size, Limit: l.limit}
	}
	answer, err := l.manager.Publish(ctx, packet)
	switch {
	case err == nil:
		return size, nil
	case answer != nil && answer.ReasonCode == reasonNotAuthorizedCode:
		return size, transport.ErrNotAuthorized
	case answer != nil:
		refused := &refusedError{code: answer.ReasonCode}
		if answer.Properties != nil {
			refused.text = answer.Properties.ReasonString
		}
		return size, refused
	case ctx.Err() != nil:
		return size, ctx.Err()
	case l.session.isLost():
		return size, fmt.Errorf("%w: the connection was lost before the broker confirmed: %w", transport.ErrNotConnected, l.session.lossReason())
	case errors.Is(err, autopaho.ConnectionDownError), errors.Is(err, pahosession.ErrNoConnection):
		return size, transport.ErrNotConnected
	case errors.Is(err, context.DeadlineExceeded):
		return size, fmt.Errorf("the broker did not confirm within %s", confirmTimeout)
	default:
		return size, err
	}
}
