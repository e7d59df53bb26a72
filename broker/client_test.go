package broker_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/transport/websocket"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttkit"
)

const password = "correct horse"

// users returns the users of most tests.
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

// options are the options of a test client. Zero values are the defaults of most tests.
type options struct {
	user      string
	password  string // "": the password of users; "-": none
	clientID  string // "": user
	anonymous bool
	expiry    uint32
	clean     bool
	will      *paho.WillMessage
	willDelay uint32
	tls       *tls.Config
	webSocket bool // at /mqtt
	manual    bool // the test acknowledges

	receiveMaximum uint16
	maxPacketSize  uint32
	noProblemInfo  bool
}

// client is a test client that keeps what it receives. Its methods fail the test on an error.
type client struct {
	*paho.Client
	t       *testing.T
	connack *paho.Connack
	conn    net.Conn

	changed chan struct{} // receives after a change of the fields below

	mu           sync.Mutex
	received     []*paho.Publish
	disconnected *paho.Disconnect
}

// dial connects and fails the test if the broker refuses.
func dial(t *testing.T, addr string, o options) *client {
	t.Helper()
	c, err := tryDial(t, addr, o)
	if err != nil {
		t.Fatalf("connect as %q: %v", o.user, err)
	}
	return c
}

// dialRaw returns a client for single packets.
func dialRaw(t testing.TB, addr, user string) *mqttkit.Client {
	t.Helper()
	return mqttkit.Dial(t, addr, user, password)
}

// tryDial connects. With an error, the client still has the CONNACK, if there was one.
func tryDial(t *testing.T, addr string, o options) (*client, error) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	kit.NoError(t, err)
	if o.tls != nil {
		conn = packets.NewThreadSafeConn(tls.Client(conn, o.tls)) // paho writes a packet in pieces
	}
	if o.webSocket {
		ws, err := websocket.Client(t.Context(), conn, "ws://"+addr+"/mqtt")
		if err != nil {
			return &client{t: t}, errors.Join(err, conn.Close())
		}
		conn = packets.NewThreadSafeConn(ws)
	}
	c := &client{t: t, conn: conn, changed: make(chan struct{}, 1)}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn:                       conn,
		EnableManualAcknowledgment: o.manual,
		SendAcksInterval:           time.Millisecond,
		PacketTimeout:              kit.Patience,
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
	c.connack, err = c.Connect(t.Context(), connect)
	return c, err
}

func (c *client) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// drop ends the connection as a network failure would.
func (c *client) drop() {
	_ = c.conn.Close()
	<-c.Done()
}

// leave ends the connection normally.
func (c *client) leave() {
	_ = c.Disconnect(&paho.Disconnect{})
	<-c.Done()
}

// subscribe subscribes with QoS 1 and returns the reason code.
func (c *client) subscribe(filter string) byte {
	c.t.Helper()
	ack, err := c.Subscribe(c.t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: 1}}})
	if ack == nil || len(ack.Reasons) != 1 {
		c.t.Fatalf("subscribe to %s: %v", filter, err)
	}
	return ack.Reasons[0]
}

// mustSubscribe fails the test unless the subscription is granted.
func (c *client) mustSubscribe(filter string) {
	c.t.Helper()
	if code := c.subscribe(filter); code > 1 {
		c.t.Fatalf("subscribe to %s: reason 0x%x", filter, code)
	}
}

// publish publishes with QoS 1 and returns the reason code.
func (c *client) publish(topic, payload string) byte {
	c.t.Helper()
	return c.publishPacket(&paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)})
}

func (c *client) publishPacket(p *paho.Publish) byte {
	c.t.Helper()
	response, err := c.Publish(c.t.Context(), p)
	if response == nil {
		c.t.Fatalf("publish to %s: %v", p.Topic, err)
	}
	return response.ReasonCode
}

// publishMany publishes payloads in order without waiting for each to be acknowledged, and then
// waits for the last, which a broker acknowledges last.
func (c *client) publishMany(topic string, payloads []string) {
	c.t.Helper()
	for i, payload := range payloads {
		p := &paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)}
		if i == len(payloads)-1 {
			if code := c.publishPacket(p); code >= 0x80 {
				c.t.Fatalf("publish to %s: reason 0x%x", topic, code)
			}
			return
		}
		if _, err := c.PublishWithOptions(c.t.Context(), p, paho.PublishOptions{Method: paho.PublishMethod_AsyncSend}); err != nil {
			c.t.Fatalf("publish to %s: %v", topic, err)
		}
	}
}

// await waits until ok returns true. ok is called with c.mu held.
func (c *client) await(what string, ok func() bool) {
	c.t.Helper()
	holds := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok()
	}
	for !holds() {
		kit.Receive(c.t, what, c.changed)
	}
}

// payloads waits for n messages and returns the payloads of all received.
func (c *client) payloads(n int) []string {
	c.t.Helper()
	c.await("receiving the messages", func() bool { return len(c.received) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, p := range c.received {
		out = append(out, string(p.Payload))
	}
	return out
}

// disconnectCode waits for the broker's DISCONNECT and returns its reason.
func (c *client) disconnectCode() byte {
	c.t.Helper()
	c.await("the broker's DISCONNECT", func() bool { return c.disconnected != nil })
	return c.disconnected.ReasonCode
}

// scrape returns the value of a metric of a broker that serves metrics.
func scrape(t *testing.T, b *brokertest.Running, metric string, labels ...string) float64 {
	t.Helper()
	response := get(t, b, "/metrics")
	defer func() { _ = response.Close() }()
	metrics, err := kit.ParseMetrics(response)
	kit.NoError(t, err)
	if len(metrics.Select(metric, labels...)) != 1 {
		t.Fatalf("there is no metric %s %v", metric, labels)
	}
	return metrics.Sum(metric, labels...)
}

func get(t *testing.T, b *brokertest.Running, path string) io.ReadCloser {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://%s%s", b.Broker.HTTPAddr(), path))
	kit.NoError(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s", path, response.Status)
	}
	return response.Body
}
