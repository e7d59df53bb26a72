package mqtt

import (
	"context"
	"errors"
	"fmt"
	"net"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

// Conn is one connection to a broker, for tools that look at it: it is not restored when it is lost,
// starts with a clean session, and leaves none. Its methods are safe for concurrent use.
type Conn struct{ *connection }

// Received is a message that a [Conn] received.
type Received struct {
	// Message is the message. It needs no acknowledgement.
	transport.Message
	// Size is that of the packet in bytes.
	Size int
}

// Dial connects. received is called for each message, not concurrently; it may be nil. An error of
// the broker has the reason code that it gave; see [Advice].
func Dial(ctx context.Context, broker config.Config, clientID string, received func(Received)) (*Conn, error) {
	broker = broker.WithDefaults()
	packet, err := connectPacket(broker, clientID)
	if err != nil {
		return nil, err
	}
	packet.CleanStart = true
	connectCtx, cancel := context.WithTimeout(ctx, broker.DialTimeout)
	defer cancel()
	dialed, err := dial(connectCtx, broker, endpoint{})
	if err != nil {
		return nil, err
	}
	c, err := connect(connectCtx, dialed, packet, broker.DialTimeout, func(c *connection, p *paho.Publish) {
		if received != nil {
			m := Received{Size: packetSize(p), Message: transport.Message{Topic: p.Topic, Ack: func() {}}}
			m.Event, m.Err = decode(ctx, p)
			received(m)
		}
		if p.QoS > 0 {
			c.session.window.add(p.PacketID, p.QoS)()
		}
	})
	if err != nil {
		return nil, connectError(err)
	}
	go c.session.sendAcks()
	return &Conn{c}, nil
}

// Limit returns the maximum packet size in bytes that the broker announced, 0 for none.
func (c *Conn) Limit() int { return c.limit }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.session.lost }

// Err returns why the connection has ended, nil while it has not.
func (c *Conn) Err() error {
	if !c.session.isLost() {
		return nil
	}
	return c.session.lossReason()
}

// Subscribe subscribes to a filter. It returns an error if the broker refuses it.
func (c *Conn) Subscribe(ctx context.Context, filter string, qos byte) error {
	_, err := c.subscribe(ctx, qos, filter)
	return err
}

// Publish publishes e with QoS 1. heard is false if the broker says that nobody subscribes to the
// topic; most brokers do not say so.
func (c *Conn) Publish(ctx context.Context, topic string, e cloudevents.Event) (heard bool, err error) {
	packet, err := encode(ctx, topic, &e, 1)
	if err != nil {
		return false, err
	}
	_, nobody, err := c.publish(ctx, packet)
	if err != nil {
		return false, fmt.Errorf("publish to %s: %w", topic, err)
	}
	return !nobody, nil
}

// Close disconnects.
func (c *Conn) Close() {
	c.session.setLossReason(net.ErrClosed)
	_ = c.client.Disconnect(&paho.Disconnect{}) // the connection ends either way
}

// Advice returns what to do about an error of this package, empty if only waiting helps.
func Advice(err error) string {
	if errors.Is(err, transport.ErrNotAuthorized) {
		return advices[packets.PubackNotAuthorized]
	}
	return adviceFor(err)
}
