package mqtt_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/test/kit"
)

// fakeBroker is a listener whose connections the test answers packet by packet, to do what real
// brokers do seldom.
type fakeBroker struct {
	addr  string
	conns chan *fakeConn
}

type fakeConn struct {
	net.Conn
	t testing.TB
}

func startFake(t testing.TB) *fakeBroker {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	kit.NoError(t, err)
	b := &fakeBroker{addr: listener.Addr().String(), conns: make(chan *fakeConn, 1000)}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(b.conns)
				return
			}
			b.conns <- &fakeConn{conn, t}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
		for c := range b.conns {
			_ = c.Close()
		}
	})
	return b
}

// next waits for the next connection.
func (b *fakeBroker) next(t testing.TB) *fakeConn {
	t.Helper()
	c := kit.Receive(t, "a connection", b.conns)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// accept waits for the next connection, and answers its CONNECT.
func (b *fakeBroker) accept(t testing.TB, answer *packets.Connack) *fakeConn {
	t.Helper()
	c := b.next(t)
	read[*packets.Connect](c)
	if answer.Properties == nil {
		answer.Properties = &packets.Properties{}
	}
	c.send(answer)
	return c
}

// granted is accept, with every subscription granted.
func (b *fakeBroker) granted(t testing.TB, answer *packets.Connack) *fakeConn {
	t.Helper()
	c := b.accept(t, answer)
	c.grant()
	return c
}

func (c *fakeConn) grant() {
	c.t.Helper()
	s := read[*packets.Subscribe](c)
	c.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: bytes.Repeat([]byte{1}, len(s.Subscriptions))})
}

// read gives the next packet that is no ping.
func read[P packets.Packet](c *fakeConn) P {
	c.t.Helper()
	for {
		_ = c.SetReadDeadline(time.Now().Add(kit.Patience))
		p, err := packets.ReadPacket(c)
		if err != nil {
			c.t.Fatalf("read a packet: %v", err)
		}
		if p.Type == packets.PINGREQ {
			c.send(&packets.Pingresp{})
			continue
		}
		content, ok := p.Content.(P)
		if !ok {
			c.t.Fatalf("got %s, want %T", p.PacketType(), content)
		}
		return content
	}
}

// quiet fails the test when a packet other than a ping comes within the time.
func (c *fakeConn) quiet(d time.Duration) {
	c.t.Helper()
	for until := time.Now().Add(d); ; {
		_ = c.SetReadDeadline(until)
		p, err := packets.ReadPacket(c)
		if err != nil {
			return
		}
		if p.Type != packets.PINGREQ {
			c.t.Fatalf("got %s, want nothing", p.PacketType())
		}
		c.send(&packets.Pingresp{})
	}
}

func (c *fakeConn) send(p packets.Packet) {
	c.t.Helper()
	if _, err := p.WriteTo(c); err != nil {
		c.t.Fatalf("send %T: %v", p, err)
	}
}

func (c *fakeConn) disconnect(code byte) {
	c.t.Helper()
	c.send(&packets.Disconnect{ReasonCode: code, Properties: &packets.Properties{}})
	_ = c.Close()
}

func (c *fakeConn) publish(id uint16, topic, payload string, properties *packets.Properties) {
	c.t.Helper()
	c.send(&packets.Publish{PacketID: id, QoS: 1, Topic: topic, Payload: []byte(payload), Properties: properties})
}

// logs keeps what was logged.
type logs struct{ kit.Log }

// count returns the number of lines that contain all texts.
func (l *logs) count(texts ...string) int { return len(l.Lines(texts...)) }

// into makes the transport log to l, at level Info.
func (l *logs) into(c *mqtt.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }

func connack(change func(*packets.Connack)) *packets.Connack {
	c := &packets.Connack{Properties: &packets.Properties{}}
	change(c)
	return c
}

func refusedWith(code byte) *packets.Connack {
	return connack(func(c *packets.Connack) { c.ReasonCode = code })
}

func eventProperties(id string) *packets.Properties {
	p := &packets.Properties{ContentType: "application/json"}
	for _, pair := range [][2]string{{"ce-id", id}, {"ce-source", "hub1"}, {"ce-specversion", "1.0"}, {"ce-type", "a.b"}} {
		p.User = append(p.User, packets.User{Key: pair[0], Value: pair[1]})
	}
	return p
}

func fmtID(i int) string { return fmt.Sprintf("event%d", i) }
