// Package mqttkit has an MQTT 5 client for tests that writes and reads single packets, including
// packets that a regular client would not send.
//
//	c := mqttkit.Dial(t, addr, "hub1", "password")
//	c.Connect("client id", 3600)
//	c.Publish(1, topic, []byte("payload"))
//	ack := c.Next().(*packets.Puback)
package mqttkit

import (
	"bufio"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// timeout limits the life of a connection, unless the test sets another deadline.
const timeout = 5 * time.Minute

// Client is a connection to a broker. Except for Publish, its methods fail the test on an error,
// and must be called by the goroutine of the test.
type Client struct {
	net.Conn
	// Reader reads from the connection.
	Reader *bufio.Reader

	t              testing.TB
	user, password string
}

// Dial connects to addr and sends nothing. The connection is closed at the end of the test.
func Dial(t testing.TB, addr, user, password string) *Client {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(timeout))
	return &Client{Conn: conn, Reader: bufio.NewReader(conn), t: t, user: user, password: password}
}

// Send writes one packet.
func (c *Client) Send(p packets.Packet) {
	c.t.Helper()
	if _, err := p.WriteTo(c.Conn); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// Next reads one packet.
func (c *Client) Next() packets.Packet {
	c.t.Helper()
	p, err := packets.ReadPacket(c.Reader)
	if err != nil {
		c.t.Fatalf("read a packet: %v", err)
	}
	return p.Content
}

// ExpectEnd fails the test unless the broker closes the connection without another packet.
func (c *Client) ExpectEnd() {
	c.t.Helper()
	if p, err := packets.ReadPacket(c.Reader); err == nil {
		c.t.Errorf("instead of the end of the connection: %v", p)
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Error("the broker does not close the connection")
	}
}

// Connect connects with a session expiry in seconds, and returns the CONNACK.
func (c *Client) Connect(clientID string, expiry uint32) *packets.Connack {
	c.t.Helper()
	c.Send(&packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: clientID, KeepAlive: 60,
		UsernameFlag: true, Username: c.user, PasswordFlag: true, Password: []byte(c.password),
		Properties: &packets.Properties{SessionExpiryInterval: &expiry},
	})
	connack, ok := c.Next().(*packets.Connack)
	if !ok || connack.ReasonCode != 0 {
		c.t.Fatalf("connect as %s: %v", c.user, connack)
	}
	return connack
}

// Subscribe subscribes with QoS 1.
func (c *Client) Subscribe(filter string) {
	c.t.Helper()
	c.Send(&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: filter, QoS: 1}}})
	if suback, ok := c.Next().(*packets.Suback); !ok || suback.Reasons[0] > 1 {
		c.t.Fatalf("subscribe to %s: %v", filter, suback)
	}
}

// Publish sends a message with QoS 1, and does not wait for its acknowledgement. Any goroutine may
// call it.
func (c *Client) Publish(id uint16, topic string, payload []byte) error {
	_, err := (&packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: payload, Properties: &packets.Properties{}}).WriteTo(c.Conn)
	return err
}

// Ack acknowledges a message.
func (c *Client) Ack(id uint16) {
	c.t.Helper()
	c.Send(&packets.Puback{PacketID: id, Properties: &packets.Properties{}})
}
