package mqtt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

// Conn is one connection to a broker, for tools that look at it: it is not restored when it is lost,
// starts with a clean session, and leaves none. Its methods are safe for concurrent use.
type Conn struct {
	client *paho.Client
	limit  int
	lost   chan struct{}

	mu     sync.Mutex
	reason error
}

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
	dialed, err := dial(ctx, broker, endpoint{})
	if err != nil {
		return nil, err
	}
	c := &Conn{lost: make(chan struct{})}
	c.client = paho.NewClient(paho.ClientConfig{
		ClientID: clientID, Conn: newBufferedConn(context.WithoutCancel(ctx), dialed.raw, dialed.secured, c.end), PacketTimeout: broker.DialTimeout,
		OnServerDisconnect: func(d *paho.Disconnect) {
			c.end(&refusedError{d.ReasonCode, d.Properties.ReasonString})
		},
		OnClientError: c.end,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			if received != nil {
				m := Received{Size: packetSize(p.Packet), Message: transport.Message{Topic: p.Packet.Topic, Ack: func() {}}}
				m.Event, m.Err = decode(ctx, p.Packet)
				received(m)
			}
			return true, nil
		}},
	})
	if err := c.connect(ctx, broker, clientID); err != nil {
		_ = dialed.raw.Close() // the connection is of no use
		return nil, err
	}
	return c, nil
}

func (c *Conn) connect(ctx context.Context, broker config.Config, clientID string) error {
	packet := &paho.Connect{
		ClientID: clientID, CleanStart: true, KeepAlive: uint16(broker.KeepAlive / time.Second),
		Properties: &paho.ConnectProperties{},
	}
	if err := configure(packet, broker); err != nil {
		return err
	}
	answer, err := c.client.Connect(ctx, packet)
	switch {
	case answer != nil && answer.ReasonCode >= 0x80:
		return &refusedError{answer.ReasonCode, answer.Properties.ReasonString}
	case err != nil:
		return connectError(cmp.Or(c.Err(), err))
	}
	c.limit = int(ptr.Deref(answer.Properties.MaximumPacketSize, 0))
	return nil
}

// configure sets what the configuration says of a CONNECT packet.
func configure(p *paho.Connect, broker config.Config) error {
	if broker.Username != "" {
		secret, err := broker.ReadPassword()
		if err != nil {
			return err
		}
		p.UsernameFlag, p.Username = true, broker.Username
		p.PasswordFlag, p.Password = secret != "", []byte(secret)
	}
	p.Properties.ReceiveMaximum = &broker.ReceiveMaximum
	p.Properties.MaximumPacketSize = &broker.MaximumPacketSize
	p.Properties.RequestProblemInfo = true
	return nil
}

// end records why the connection has ended; the first reason counts.
func (c *Conn) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil {
		c.reason = reason
		close(c.lost)
	}
}

// Limit returns the maximum packet size in bytes that the broker announced, 0 for none.
func (c *Conn) Limit() int { return c.limit }

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.lost }

// Err returns why the connection has ended, nil while it has not.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reason
}

// Subscribe subscribes to a filter. It returns an error if the broker refuses it.
func (c *Conn) Subscribe(ctx context.Context, filter string, qos byte) error {
	answer, err := c.client.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}}})
	switch {
	case answer != nil && len(answer.Reasons) == 1 && answer.Reasons[0] >= 0x80:
		return fmt.Errorf("subscribe to %s: %w", filter, &refusedError{answer.Reasons[0], answer.Properties.ReasonString})
	case err != nil:
		return fmt.Errorf("subscribe to %s: %w", filter, errors.Join(err, c.Err()))
	}
	return nil
}

// Publish publishes e with QoS 1. heard is false if the broker says that nobody subscribes to the
// topic; most brokers do not say so.
func (c *Conn) Publish(ctx context.Context, topic string, e cloudevents.Event) (heard bool, err error) {
	packet, err := encode(ctx, topic, &e, 1)
	if err != nil {
		return false, err
	}
	if size := packetSize(packet); c.limit > 0 && size > c.limit {
		return false, &transport.TooLargeError{Size: size, Limit: c.limit}
	}
	answer, err := c.client.Publish(ctx, packet)
	switch {
	case answer != nil && answer.ReasonCode == packets.PubackNotAuthorized:
		return false, fmt.Errorf("publish to %s: %w", topic, transport.ErrNotAuthorized)
	case answer != nil && answer.ReasonCode >= 0x80:
		return false, fmt.Errorf("publish to %s: %w", topic, &refusedError{answer.ReasonCode, answer.Properties.ReasonString})
	case err != nil:
		return false, fmt.Errorf("publish to %s: %w", topic, errors.Join(err, c.Err()))
	}
	return answer == nil || answer.ReasonCode != packets.PubackNoMatchingSubscribers, nil
}

// Close disconnects.
func (c *Conn) Close() {
	c.end(net.ErrClosed)
	_ = c.client.Disconnect(&paho.Disconnect{ReasonCode: 0}) // the connection ends either way
}

// Advice returns what to do about an error of this package, empty if only waiting helps.
func Advice(err error) string {
	if errors.Is(err, transport.ErrNotAuthorized) {
		return advices[packets.PubackNotAuthorized]
	}
	return adviceFor(err)
}
