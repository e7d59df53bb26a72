package broker_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
)

const password = "correct horse"

// users are the clients of most tests.
func users() []broker.User {
	return []broker.User{
		{Username: "hub1", Password: password, Role: acl.Source},
		{Username: "hub2", Password: password, Role: acl.Source},
		{Username: "c1", Password: password, Role: acl.Agent},
		{Username: "c2", Password: password, Role: acl.Agent},
	}
}

// withMonitor adds a monitor, which Mosquitto's configuration does not have.
func withMonitor() []broker.User {
	return append(users(), broker.User{Username: "watch", Password: password, Role: acl.Monitor})
}

// testContext ends with the test or after a time in which every test should be done.
func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// options say how a test client connects. Zero values are what most tests want.
type options struct {
	user      string
	password  string // "": the one of users; "-": none
	clientID  string // "": user
	anonymous bool
	expiry    uint32
	clean     bool
	will      *paho.WillMessage
	willDelay uint32
	tls       *tls.Config
	manual    bool // the test acknowledges

	receiveMaximum uint16
	maxPacketSize  uint32
	noProblemInfo  bool
}

// client is a test client that collects what it receives.
type client struct {
	*paho.Client
	connack *paho.Connack
	conn    net.Conn

	mu           sync.Mutex
	received     []*paho.Publish
	disconnected *paho.Disconnect
	changed      chan struct{} // closed and replaced when one of the above changes
}

// dial connects and fails the test when the broker refuses.
func dial(ctx context.Context, t *testing.T, addr string, o options) *client {
	t.Helper()
	c, err := tryDial(ctx, t, addr, o)
	if err != nil {
		t.Fatalf("connect as %q: %v", o.user, err)
	}
	return c
}

// tryDial connects. With an error, the client still has the CONNACK, if there was one.
func tryDial(ctx context.Context, t *testing.T, addr string, o options) (*client, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if o.tls != nil {
		conn = packets.NewThreadSafeConn(tls.Client(conn, o.tls)) // paho writes a packet in pieces
	}
	c := &client{conn: conn, changed: make(chan struct{})}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn:                       conn,
		EnableManualAcknowledgment: o.manual,
		SendAcksInterval:           time.Millisecond,
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			c.change(func() { c.received = append(c.received, p.Packet) })
			return true, nil
		}},
		OnServerDisconnect: func(d *paho.Disconnect) { c.change(func() { c.disconnected = d }) },
	})
	if o.clientID == "" {
		o.clientID = o.user
	}
	connect := &paho.Connect{
		ClientID: o.clientID, KeepAlive: 30, CleanStart: o.clean,
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &o.expiry, RequestProblemInfo: !o.noProblemInfo},
	}
	if !o.anonymous {
		connect.UsernameFlag, connect.Username = true, o.user
		if o.password == "" {
			o.password = password
		}
		if o.password != "-" {
			connect.PasswordFlag, connect.Password = true, []byte(o.password)
		}
	}
	if o.will != nil {
		connect.WillMessage, connect.WillProperties = o.will, &paho.WillProperties{WillDelayInterval: &o.willDelay}
	}
	if o.receiveMaximum > 0 {
		connect.Properties.ReceiveMaximum = &o.receiveMaximum
	}
	if o.maxPacketSize > 0 {
		connect.Properties.MaximumPacketSize = &o.maxPacketSize
	}
	t.Cleanup(func() {
		_ = conn.Close()
		if err == nil {
			<-c.Done()
		}
	})
	c.connack, err = c.Connect(ctx, connect)
	return c, err
}

func (c *client) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// drop ends the connection as a network failure would.
func (c *client) drop() {
	_ = c.conn.Close()
	<-c.Done()
}

// leave ends the connection in good order.
func (c *client) leave() {
	_ = c.Disconnect(&paho.Disconnect{})
	<-c.Done()
}

// subscribe subscribes with QoS 1 and returns the reason code.
func (c *client) subscribe(ctx context.Context, t *testing.T, filter string) byte {
	t.Helper()
	ack, err := c.Subscribe(ctx, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: 1}}})
	if ack == nil || len(ack.Reasons) != 1 {
		t.Fatalf("subscribe to %s: %v", filter, err)
	}
	return ack.Reasons[0]
}

// mustSubscribe fails the test unless the subscription is granted.
func (c *client) mustSubscribe(ctx context.Context, t *testing.T, filter string) {
	t.Helper()
	if code := c.subscribe(ctx, t, filter); code > 1 {
		t.Fatalf("subscribe to %s: reason 0x%x", filter, code)
	}
}

// publish publishes with QoS 1 and returns the reason code.
func (c *client) publish(ctx context.Context, t *testing.T, topic, payload string) byte {
	t.Helper()
	return c.publishPacket(ctx, t, &paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)})
}

func (c *client) publishPacket(ctx context.Context, t *testing.T, p *paho.Publish) byte {
	t.Helper()
	response, err := c.Publish(ctx, p)
	if response == nil {
		t.Fatalf("publish to %s: %v", p.Topic, err)
	}
	return response.ReasonCode
}

// publishMany publishes payloads in order without waiting for each to be acknowledged, and
// then waits for the last, which a broker acknowledges last.
func (c *client) publishMany(ctx context.Context, t *testing.T, topic string, payloads []string) {
	t.Helper()
	for i, payload := range payloads {
		p := &paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)}
		if i == len(payloads)-1 {
			if code := c.publishPacket(ctx, t, p); code >= 0x80 {
				t.Fatalf("publish to %s: reason 0x%x", topic, code)
			}
			return
		}
		if _, err := c.PublishWithOptions(ctx, p, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend}); err != nil {
			t.Fatalf("publish to %s: %v", topic, err)
		}
	}
}

// await waits until ok holds, which is evaluated with c.mu held.
func (c *client) await(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for {
		c.mu.Lock()
		done, changed := ok(), c.changed
		c.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("%s did not happen in time", what)
		}
	}
}

// payloads waits for n messages and returns the payloads of all received.
func (c *client) payloads(ctx context.Context, t *testing.T, n int) []string {
	t.Helper()
	c.await(ctx, t, "receiving the messages", func() bool { return len(c.received) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range c.received {
		out = append(out, string(p.Payload))
	}
	return out
}

// disconnectCode waits for the broker's DISCONNECT and returns its reason.
func (c *client) disconnectCode(ctx context.Context, t *testing.T) byte {
	t.Helper()
	c.await(ctx, t, "the broker's DISCONNECT", func() bool { return c.disconnected != nil })
	return c.disconnected.ReasonCode
}
