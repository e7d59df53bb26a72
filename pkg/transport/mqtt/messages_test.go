package mqtt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
)

// The broker takes as many publishes at a time as it has announced.
func TestReceiveMaximum(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, connack(func(c *packets.Connack) { c.Properties.ReceiveMaximum = new(uint16(2)) }))
	c.WaitConnected()
	results := make(chan error, 5)
	for i := range 5 {
		go func() { results <- c.Publish(context.Background(), topic, transporttest.Event(fmtID(i), 64)) }()
	}
	first, second := read[*packets.Publish](conn), read[*packets.Publish](conn)
	conn.quiet(100 * time.Millisecond)
	conn.send(&packets.Puback{PacketID: second.PacketID, Properties: &packets.Properties{}})
	if err := kit.Receive(t, "the second publish", results); err != nil {
		t.Error(err)
	}
	third := read[*packets.Publish](conn)
	conn.quiet(100 * time.Millisecond)
	for _, id := range []uint16{first.PacketID, third.PacketID} {
		conn.send(&packets.Puback{PacketID: id, ReasonCode: 0x10, Properties: &packets.Properties{}}) // no subscribers: a success
		if err := kit.Receive(t, "a publish", results); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		conn.send(&packets.Puback{PacketID: read[*packets.Publish](conn).PacketID, Properties: &packets.Properties{}})
		if err := kit.Receive(t, "a publish", results); err != nil {
			t.Error(err)
		}
	}
}

// What waits for its turn ends with its context, and takes no turn.
func TestWaitingPublishEnds(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, connack(func(c *packets.Connack) { c.Properties.ReceiveMaximum = new(uint16(1)) }))
	c.WaitConnected()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- c.Publish(context.Background(), topic, transporttest.Event("first", 64)) }()
	sent := read[*packets.Publish](conn)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { second <- c.Publish(ctx, topic, transporttest.Event("second", 64)) }()
	conn.quiet(50 * time.Millisecond)
	cancel()
	if err := kit.Receive(t, "the end of the second", second); !errors.Is(err, context.Canceled) {
		t.Errorf("the second ended with %v", err)
	}
	conn.send(&packets.Puback{PacketID: sent.PacketID, Properties: &packets.Properties{}})
	if err := kit.Receive(t, "the first", first); err != nil {
		t.Error(err)
	}
	conn.quiet(50 * time.Millisecond)
	go func() { first <- c.Publish(context.Background(), topic, transporttest.Event("third", 64)) }()
	if p := read[*packets.Publish](conn); value(p.Properties, "ce-id") != "third" {
		t.Errorf("after the first, %s was sent", p)
	}
}

// A publish that failed is never sent again, also when the session is resumed: it would come after
// something newer.
func TestNoStalePublish(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, &packets.Connack{})
	c.WaitConnected()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 2)
	go func() { result <- c.Publish(ctx, topic, transporttest.Event("given up", 64)) }()
	read[*packets.Publish](conn)
	cancel()
	if err := kit.Receive(t, "the cancelled publish", result); !errors.Is(err, context.Canceled) {
		t.Errorf("the cancelled publish ended with %v", err)
	}
	go func() { result <- c.Publish(context.Background(), topic, transporttest.Event("lost", 64)) }()
	read[*packets.Publish](conn)
	lost := time.Now()
	_ = conn.Close()
	if err := kit.Receive(t, "the lost publish", result); !errors.Is(err, transport.ErrNotConnected) || !strings.Contains(err.Error(), "before the broker acknowledged") {
		t.Errorf("the lost publish ended with %v", err)
	}
	conn = b.accept(t, connack(func(c *packets.Connack) { c.SessionPresent = true }))
	if took := time.Since(lost); took > 9*time.Second { // 200 ms at most
		t.Errorf("it took %s to begin to reconnect", took)
	}
	if !c.WaitConnected().Resumed {
		t.Error("the session is not resumed")
	}
	conn.quiet(100 * time.Millisecond)
	go func() { result <- c.Publish(context.Background(), topic, transporttest.Event("new", 64)) }()
	p := read[*packets.Publish](conn)
	if value(p.Properties, "ce-id") != "new" {
		t.Errorf("%s was sent", p)
	}
	conn.send(&packets.Puback{PacketID: p.PacketID, Properties: &packets.Properties{}})
	if err := kit.Receive(t, "the new publish", result); err != nil {
		t.Error(err)
	}
}

func TestPublishRefused(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, &packets.Connack{})
	c.WaitConnected()
	for code, want := range map[byte]string{0x97: "0x97: quota exceeded", 0x80: "0x80: unspecified error", 0xF0: "0xF0: unknown reason code"} {
		result := make(chan error, 1)
		go func() { result <- c.Publish(context.Background(), topic, transporttest.Event("one", 64)) }()
		p := read[*packets.Publish](conn)
		conn.send(&packets.Puback{PacketID: p.PacketID, ReasonCode: code, Properties: &packets.Properties{ReasonString: "because"}})
		err := kit.Receive(t, "the publish", result)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "because") || !strings.Contains(err.Error(), topic) {
			t.Errorf("reason code 0x%02X gives %v", code, err)
		}
	}
}

// MQTT carries no text longer than 65535 bytes; paho would cut it off.
func TestLongAttribute(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, &packets.Connack{})
	c.WaitConnected()
	e := transporttest.Event("one", 64)
	e.SetExtension("metadata", strings.Repeat("x", 65536))
	var tooLarge *transport.TooLargeError
	err := c.Publish(context.Background(), topic, e)
	if !errors.As(err, &tooLarge) || tooLarge.Attribute != "metadata" || tooLarge.Size != 65536 || tooLarge.Limit != 65535 {
		t.Errorf("publish gives %v", err)
	}
	for _, bad := range []string{"\xff", "a\x00b"} {
		e.SetExtension("metadata", bad)
		if err := c.Publish(context.Background(), topic, e); err == nil || !strings.Contains(err.Error(), "metadata") {
			t.Errorf("publish with metadata %q gives %v", bad, err)
		}
	}
	for _, bad := range []string{"", "a/+", "a/#", "a\x00"} {
		if err := c.Publish(context.Background(), bad, transporttest.Event("one", 64)); err == nil {
			t.Errorf("publish to topic %q succeeds", bad)
		}
	}
	conn.quiet(50 * time.Millisecond)
}

// Acknowledgements go out at once, and in the order that the messages came in.
func TestAckOrder(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil), transporttest.ClusterSpecs)
	conn := b.granted(t, &packets.Connack{})
	c.WaitConnected()
	var acks []func()
	for i := range 3 {
		conn.publish(uint16(10+i), transporttest.ClusterSpecs, "{}", eventProperties(fmtID(i)))
		acks = append(acks, c.Next().Ack)
	}
	acks[2]()
	acks[1]()
	conn.quiet(50 * time.Millisecond)
	acks[0]()
	for i := range 3 {
		if p := read[*packets.Puback](conn); p.PacketID != uint16(10+i) || p.ReasonCode != 0 {
			t.Errorf("acknowledgement %d is %s", i, p)
		}
	}
	_ = conn.Close()
	c.WaitLost()
	conn = b.granted(t, &packets.Connack{})
	c.WaitConnected()
	// The same packet identifier, on a new connection.
	conn.publish(10, transporttest.ClusterSpecs, "{}", eventProperties("again"))
	again := c.Next()
	acks[0]()
	conn.quiet(50 * time.Millisecond)
	again.Ack()
	if p := read[*packets.Puback](conn); p.PacketID != 10 {
		t.Errorf("acknowledgement is %s", p)
	}
}

// QoS 2 left over in a session is brought to its end.
func TestQoS2LeftOver(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil), transporttest.ClusterSpecs)
	conn := b.granted(t, &packets.Connack{})
	conn.send(&packets.Publish{PacketID: 4, QoS: 2, Topic: transporttest.ClusterSpecs, Properties: eventProperties("old")})
	c.Expect("old")
	if p := read[*packets.Pubrec](conn); p.PacketID != 4 {
		t.Errorf("got %s", p)
	}
	conn.send(&packets.Pubrel{PacketID: 4, Properties: &packets.Properties{}})
	if p := read[*packets.Pubcomp](conn); p.PacketID != 4 {
		t.Errorf("got %s", p)
	}
}

func TestMalformedMessage(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil), transporttest.ClusterSpecs)
	conn := b.granted(t, &packets.Connack{})
	conn.publish(1, transporttest.ClusterSpecs, "secret payload", &packets.Properties{})
	m := c.Next()
	if m.Err == nil || !strings.Contains(m.Err.Error(), transporttest.ClusterSpecs) || strings.Contains(m.Err.Error(), "secret") || m.Topic != transporttest.ClusterSpecs {
		t.Errorf("message on %q has error %v", m.Topic, m.Err)
	}
	m.Ack()
	read[*packets.Puback](conn)
}

func value(p *packets.Properties, key string) string {
	for _, u := range p.User {
		if u.Key == key {
			return u.Value
		}
	}
	return ""
}
