package conformance_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

const password = "correct horse"

// users returns two sources, three agents and a monitor.
func users() []broker.User {
	return []broker.User{
		{Username: "hub1", Password: password, Role: acl.Source},
		{Username: "hub2", Password: password, Role: acl.Source},
		{Username: "c1", Password: password, Role: acl.Agent},
		{Username: "c2", Password: password, Role: acl.Agent},
		{Username: "c3", Password: password, Role: acl.Agent},
		{Username: "watch", Password: password, Role: acl.Monitor},
	}
}

// down is the topic from hub1 to a cluster, up the one back.
func down(cluster string) string { return "sources/hub1/clusters/" + cluster + "/sourceevents" }
func up(cluster string) string   { return "sources/hub1/clusters/" + cluster + "/agentevents" }

// The filters of a cluster's agent and of hub1.
func downFilter(cluster string) string { return "sources/+/clusters/" + cluster + "/sourceevents" }

const upFilter = "sources/hub1/clusters/+/agentevents"

// start starts a broker and returns its address.
func start(t *testing.T) string {
	t.Helper()
	return brokertest.Start(t, broker.Config{Users: users()}).Addr
}

// as returns a CONNECT of a user, whose client id is the user's name.
func as(user string) mqttraw.Connect {
	return mqttraw.Connect{ClientID: user, User: user, Password: password, KeepAlive: 600}
}

// durable returns c with a session expiry of an hour.
func durable(c mqttraw.Connect) mqttraw.Connect {
	c.Props = append(slices.Clip(c.Props), mqttraw.PropFour(mqttraw.SessionExpiry, 3600))
	return c
}

// client is a connected client.
type client struct {
	*mqttraw.Conn
	connack *mqttraw.Received

	t      *testing.T
	lastID uint16
}

// connect connects, and fails the test unless the broker accepts the client.
func connect(t *testing.T, addr string, c mqttraw.Connect) *client {
	t.Helper()
	conn := mqttraw.Dial(t, addr)
	conn.Send(c.Bytes())
	connack := conn.Expect(mqttraw.CONNACK)
	if connack.Code() != 0 {
		t.Fatalf("connect as %s: %v", c.User, connack)
	}
	return &client{Conn: conn, connack: connack, t: t}
}

func (c *client) id() uint16 { c.lastID++; return c.lastID }

// subscribe subscribes and returns the reason codes.
func (c *client) subscribe(filters ...mqttraw.Filter) []byte {
	c.t.Helper()
	id := c.id()
	c.Send(mqttraw.Subscribe(id, nil, filters...))
	return c.suback(id)
}

func (c *client) suback(id uint16) []byte {
	c.t.Helper()
	suback := c.Expect(mqttraw.SUBACK)
	if suback.ID != id {
		c.t.Fatalf("SUBACK %d, want %d", suback.ID, id)
	}
	return suback.Codes
}

// mustSubscribe subscribes with QoS 1, which the broker must grant.
func (c *client) mustSubscribe(filters ...string) *client {
	c.t.Helper()
	for _, f := range filters {
		if codes := c.subscribe(mqttraw.Filter{Topic: f, Options: 1}); !bytes.Equal(codes, []byte{1}) {
			c.t.Fatalf("subscribe to %s: %x", f, codes)
		}
	}
	return c
}

// publish publishes with QoS 1 and waits for the acknowledgement, which must be the next packet.
func (c *client) publish(topic, payload string, props ...[]byte) byte {
	c.t.Helper()
	id := c.id()
	c.Send(mqttraw.Publish(mqttraw.QoS1, id, topic, payload, props...))
	ack := c.Expect(mqttraw.PUBACK)
	if ack.ID != id {
		c.t.Fatalf("PUBACK %d, want %d", ack.ID, id)
	}
	return ack.Code()
}

// mustPublish publishes with QoS 1, which the broker must accept.
func (c *client) mustPublish(topic, payload string, props ...[]byte) {
	c.t.Helper()
	if code := c.publish(topic, payload, props...); code >= 0x80 {
		c.t.Fatalf("publish to %s: %x", topic, code)
	}
}

// receive reads a message and acknowledges it.
func (c *client) receive() *mqttraw.Received {
	c.t.Helper()
	p := c.Expect(mqttraw.PUBLISH)
	if p.QoS() > 0 {
		c.Send(mqttraw.Puback(p.ID))
	}
	return p
}

// mustReceive reads messages with these payloads in this order.
func (c *client) mustReceive(payloads ...string) {
	c.t.Helper()
	for _, want := range payloads {
		if p := c.receive(); p.Payload != want {
			c.t.Fatalf("received %q, want %q", p.Payload, want)
		}
	}
}

// ping sends a PINGREQ and waits for the answer, which must be the next packet.
func (c *client) ping() {
	c.t.Helper()
	c.Send(mqttraw.Ping)
	c.Expect(mqttraw.PINGRESP)
}

// leave disconnects normally.
func (c *client) leave() {
	c.t.Helper()
	c.Send([]byte{mqttraw.DISCONNECT, 0})
	for {
		p, err := mqttraw.Read(c.Reader)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatal("the connection stays open after DISCONNECT")
		}
		if err != nil {
			return
		}
		if p.Type != mqttraw.PUBLISH { // one may be on its way
			c.t.Fatalf("after DISCONNECT: %v", p)
		}
	}
}

// drop ends the connection as a network failure does.
func (c *client) drop() { _ = c.Close() }

// refused sends packets on a connection of its own, which the broker must close: with a CONNACK of
// one of codes before that, or without a packet if mayBeSilent is set.
func refused(t *testing.T, addr string, mayBeSilent bool, packet []byte, codes ...byte) {
	t.Helper()
	conn := mqttraw.Dial(t, addr)
	conn.Send(packet, mqttraw.Ping)
	p, err := mqttraw.Read(conn.Reader)
	switch {
	case err != nil && mayBeSilent:
	case err != nil:
		t.Errorf("no CONNACK %x: %v", codes, err)
	case p.Type != mqttraw.CONNACK || !slices.Contains(codes, p.Code()):
		t.Errorf("got %v, want CONNACK % x", p, codes)
	default:
		conn.ExpectEnd()
	}
}

// oracle is a pair of clients whose messages must arrive whatever others do.
type oracle struct{ hub, agent *client }

func newOracle(t *testing.T, addr string) *oracle {
	t.Helper()
	hub, agent := as("hub2"), as("c3")
	hub.ClientID, agent.ClientID = "oracle", "oracle"
	o := &oracle{hub: connect(t, addr, durable(hub)), agent: connect(t, addr, durable(agent))}
	o.agent.mustSubscribe("sources/hub2/clusters/c3/sourceevents")
	return o
}

// served sends a message through the broker and fails the test unless it arrives.
func (o *oracle) served() {
	o.hub.t.Helper()
	o.hub.mustPublish("sources/hub2/clusters/c3/sourceevents", "still served")
	o.agent.mustReceive("still served")
}
