package mqtt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"k8s.io/utils/ptr"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
)

const (
	subscribeTimeout = 30 * time.Second

	noRetained = 2 // retain handling: the broker sends no retained messages
)

// connection is a connection to the broker. Its fields are immutable once it is established.
type connection struct {
	session  *session
	client   *paho.Client
	endpoint endpoint            // that it leads to
	certs    config.Certificates // of the TLS configuration
	timeout  time.Duration       // for an answer of the broker
	optional []string            // filters that it may subscribe to later, see transport.Handler

	since  time.Time
	answer *paho.Connack
	limit  int // maximum packet size of the broker, 0 for none
}

// connectPacket returns what the configuration says of a CONNECT packet.
func connectPacket(broker config.Config, clientID string) (*paho.Connect, error) {
	p := &paho.Connect{
		ClientID: clientID, KeepAlive: uint16(broker.KeepAlive / time.Second), Username: broker.Username, UsernameFlag: broker.Username != "",
		Properties: &paho.ConnectProperties{ReceiveMaximum: &broker.ReceiveMaximum, MaximumPacketSize: &broker.MaximumPacketSize, RequestProblemInfo: true},
	}
	if p.UsernameFlag {
		secret, err := broker.ReadPassword()
		if err != nil {
			return nil, err
		}
		p.Password, p.PasswordFlag = []byte(secret), secret != ""
	}
	return p, nil
}

// connect sends packet and waits until ctx ends for the broker to accept it. It calls received for each
// message, not concurrently. timeout is that of the broker's later answers.
func connect(ctx context.Context, d dialed, packet *paho.Connect, timeout time.Duration, received func(*connection, *paho.Publish)) (*connection, error) {
	c := &connection{session: newSession(d), endpoint: d.endpoint, certs: d.certs, timeout: timeout}
	defer context.AfterFunc(ctx, c.session.conn.limitWrites)()
	c.client = paho.NewClient(paho.ClientConfig{
		Conn: c.session.conn, Session: c.session, PingHandler: pinger{paho.NewDefaultPinger(), c.session}, PacketTimeout: timeout,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			received(c, p.Packet)
			return true, nil
		}},
	})
	answer, err := c.client.Connect(ctx, packet)
	switch {
	case answer != nil && answer.ReasonCode >= 0x80:
		return nil, &refusedError{answer.ReasonCode, answer.Properties.ReasonString}
	case err != nil:
		return nil, err
	}
	c.since, c.answer, c.limit = time.Now(), answer, int(ptr.Deref(answer.Properties.MaximumPacketSize, 0))
	return c, nil
}

// pinger is the default pinger of paho. It sets the reason of the loss if the broker does not
// answer.
type pinger struct {
	*paho.DefaultPinger
	session *session
}

// Run sends pings until ctx ends.
func (p pinger) Run(ctx context.Context, c net.Conn, keepAlive uint16) error {
	err := p.DefaultPinger.Run(ctx, c, keepAlive)
	if err != nil {
		p.session.setLossReason(fmt.Errorf("the broker does not answer pings: %w", err))
	}
	return err
}

// subscribe subscribes to filters. It returns the QoS that the broker grants for each, or an error that
// names those that it refuses.
func (c *connection) subscribe(ctx context.Context, qos byte, filters ...string) (granted []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	request := &paho.Subscribe{}
	for _, filter := range filters {
		request.Subscriptions = append(request.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: qos, RetainHandling: noRetained})
	}
	answer, err := c.client.Subscribe(ctx, request)
	switch {
	case answer == nil && c.session.isLost():
		err = fmt.Errorf("%w: %w", transport.ErrNotConnected, c.session.lossReason())
	case answer != nil && len(answer.Reasons) == len(filters):
		var refusals []error
		for i, code := range answer.Reasons {
			if code >= 0x80 {
				refusals = append(refusals, fmt.Errorf("subscribe to %q: %w", filters[i], &refusedError{code, answer.Properties.ReasonString}))
			}
		}
		return answer.Reasons, errors.Join(refusals...)
	case answer != nil:
		err = errors.New("the broker's answer does not fit")
	}
	return nil, fmt.Errorf("subscribe to %q: %w", strings.Join(filters, ", "), err)
}

// publish publishes packet. It returns its size, and whether the broker said that no client subscribes to the
// topic.
func (c *connection) publish(ctx context.Context, packet *paho.Publish) (size int, nobody bool, err error) {
	size = packetSize(packet)
	if c.limit > 0 && size > c.limit {
		return size, false, &transport.TooLargeError{Size: size, Limit: c.limit}
	}
	answer, err := c.client.Publish(ctx, packet)
	switch {
	case err == nil:
		return size, answer != nil && answer.ReasonCode == packets.PubackNoMatchingSubscribers, nil
	case answer != nil && answer.ReasonCode == packets.PubackNotAuthorized:
		err = transport.ErrNotAuthorized
	case answer != nil:
		err = &refusedError{answer.ReasonCode, answer.Properties.ReasonString}
	case ctx.Err() != nil:
		err = ctx.Err()
	case c.session.isLost():
		err = fmt.Errorf("%w: the connection was lost before the broker acknowledged the event: %w", transport.ErrNotConnected, c.session.lossReason())
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("the broker did not acknowledge the event within %s", c.timeout)
	}
	return size, false, err
}
