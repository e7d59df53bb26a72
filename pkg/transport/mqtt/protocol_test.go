package mqtt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/test/kit"
)

const topic = transporttest.ClusterStatuses

func TestConnectPacket(t *testing.T) {
	b := startFake(t)
	transporttest.Start(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) {
		c.Broker.KeepAlive = 7 * time.Second
		c.Broker.SessionExpiry = time.Hour
		c.Broker.ReceiveMaximum = 33
		c.Broker.MaximumPacketSize = 4096
	}))
	p := read[*packets.Connect](b.next(t))
	if p.CleanStart || p.ClientID != "cluster1-client" || p.KeepAlive != 7 || p.Username != "cluster1" || string(p.Password) != password {
		t.Errorf("CONNECT is %s", p)
	}
	if *p.Properties.SessionExpiryInterval != 3600 || *p.Properties.ReceiveMaximum != 33 || *p.Properties.MaximumPacketSize != 4096 {
		t.Errorf("CONNECT has properties %s", p.Properties)
	}
}

// Connected comes when every filter is granted, and not before.
func TestSubscriptionRefused(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into), "a/+", "b/+")
	conn := b.accept(t, &packets.Connack{})
	for range 2 {
		s := read[*packets.Subscribe](conn)
		conn.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: []byte{1, 0x87}})
	}
	if err := c.Publish(context.Background(), topic, transporttest.Event("early", 64)); !errors.Is(err, transport.ErrNotConnected) {
		t.Errorf("publish before the subscriptions are granted gives %v", err)
	}
	if len(c.Connected) != 0 {
		t.Error("connected although a subscription was refused")
	}
	conn.grant()
	c.WaitConnected()
	if n := log.count("subscribe failed", `b/+`, "0x87: not authorized", "advice="); n != 1 || log.count("a/+") != 0 {
		t.Errorf("the refusal was logged %d times:\n%s", n, log)
	}
}

// A broker that hangs up on a subscription is told of, and not stormed.
func TestSubscriptionEndsConnection(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into), "a")
	started := time.Now()
	for range 4 {
		conn := b.accept(t, &packets.Connack{})
		read[*packets.Subscribe](conn)
		conn.disconnect(0x87)
	}
	b.granted(t, &packets.Connack{})
	c.WaitConnected()
	if took := time.Since(started); took < 700*time.Millisecond {
		t.Errorf("four attempts were made within %s", took)
	}
	if log.count("level=ERROR", "before the subscriptions were granted", "0x87: not authorized", "advice=") != 1 || len(c.Lost) != 0 {
		t.Errorf("lost %d times, log is:\n%s", len(c.Lost), log)
	}
}

func TestConnectRefused(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into))
	for range 3 {
		b.accept(t, refusedWith(0x86))
	}
	b.accept(t, refusedWith(0x87))
	b.accept(t, &packets.Connack{})
	c.WaitConnected()
	if n := log.count("level=ERROR", "connect failed", "0x86: bad user name or password", "check username and password"); n != 1 {
		t.Errorf("0x86 was logged %d times", n)
	}
	if n := log.count("level=ERROR", "connect failed", "0x87: not authorized"); n != 1 {
		t.Errorf("0x87 was logged %d times", n)
	}
	if log.count("secret") != 0 {
		t.Error("the password was logged")
	}
	if t.Failed() {
		t.Log(log)
	}
}

func TestNoAnswer(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into))
	_ = b.next(t).Close()
	b.accept(t, &packets.Connack{})
	c.WaitConnected()
	if log.count("connect failed", "closed the connection without an answer", "whether that port requires TLS") != 1 {
		t.Errorf("log is:\n%s", log)
	}
}

func TestTakenOver(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into))
	conn := b.accept(t, &packets.Connack{})
	c.WaitConnected()
	conn.disconnect(0x8E)
	lost := time.Now()
	if reason := c.WaitLost(); !strings.Contains(reason.Error(), "0x8E: session taken over") {
		t.Errorf("the loss has reason %v", reason)
	}
	b.accept(t, &packets.Connack{})
	if took := time.Since(lost); took < 500*time.Millisecond {
		t.Errorf("it took the session back after %s", took)
	}
	if log.count("level=ERROR", "connection lost", "another client connected with the same client id") != 1 {
		t.Errorf("log is:\n%s", log)
	}
}

func TestQoS(t *testing.T) {
	for name, test := range map[string]struct {
		configured *byte
		want       byte
		log        string
	}{
		"default": {nil, 1, ""},
		"0":       {new(byte(0)), 0, "events can be lost with QoS 0"},
		"1":       {new(byte(1)), 1, ""},
		"2":       {new(byte(2)), 1, "using QoS 1 instead of QoS 2"},
	} {
		t.Run(name, func(t *testing.T) {
			b, log := startFake(t), &logs{}
			c := transporttest.StartWith(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) {
				log.into(c)
				c.Broker.PubQoS, c.Broker.SubQoS = test.configured, test.configured
			}), transport.Handler{Subscriptions: []string{"a"}, Optional: []string{"more"}})
			conn := b.accept(t, &packets.Connack{})
			s := read[*packets.Subscribe](conn)
			if s.Subscriptions[0].QoS != test.want {
				t.Errorf("subscribed with QoS %d", s.Subscriptions[0].QoS)
			}
			conn.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: []byte{test.want}})
			c.WaitConnected()
			if err := c.Transport.(transport.Subscriber).Subscribe(t.Context(), "other"); err == nil {
				t.Error("subscribed to a filter whose messages would be dropped")
			}
			result := make(chan error, 1)
			go func() { result <- c.Transport.(transport.Subscriber).Subscribe(context.Background(), "more") }()
			if s = read[*packets.Subscribe](conn); s.Subscriptions[0].QoS != test.want {
				t.Errorf("subscribed to one more filter with QoS %d", s.Subscriptions[0].QoS)
			}
			conn.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: []byte{test.want}})
			if err := kit.Receive(t, "the subscription", result); err != nil {
				t.Error(err)
			}
			go func() { result <- c.Publish(context.Background(), topic, transporttest.Event("one", 64)) }()
			p := read[*packets.Publish](conn)
			if p.QoS != test.want {
				t.Errorf("published with QoS %d", p.QoS)
			}
			if p.QoS > 0 {
				conn.send(&packets.Puback{PacketID: p.PacketID, Properties: &packets.Properties{}})
			}
			if err := kit.Receive(t, "the publish", result); err != nil {
				t.Error(err)
			}
			if test.want == 0 {
				conn.send(&packets.Publish{QoS: 0, Topic: "a", Properties: eventProperties("in")})
				c.Expect("in")
			}
			if test.log != "" && log.count(test.log) != 1 || test.log == "" && log.count("QoS") != 0 {
				t.Errorf("log is:\n%s", log)
			}
		})
	}
}

func TestBrokerGrantsLess(t *testing.T) {
	b, log := startFake(t), &logs{}
	c := transporttest.Start(t, client(t, b.addr, "cluster1", log.into), "a")
	conn := b.accept(t, connack(func(c *packets.Connack) {
		c.Properties.SessionExpiryInterval = new(uint32(60))
		c.Properties.MaximumPacketSize = new(uint32(1000))
	}))
	s := read[*packets.Subscribe](conn)
	conn.send(&packets.Suback{PacketID: s.PacketID, Properties: &packets.Properties{}, Reasons: []byte{0}})
	if limit := c.WaitConnected().Limit; limit != 1000 || c.Limit() != 1000 {
		t.Errorf("limits are %d and %d", limit, c.Limit())
	}
	if log.count("level=WARN", "keeps sessions for a shorter time", "granted=1m0s") != 1 || log.count("level=WARN", "QoS 0 only", "filter=a") != 1 {
		t.Errorf("log is:\n%s", log)
	}
}

// A broker that takes nothing more does not keep Run from returning.
func TestBlackHole(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	conn := b.accept(t, &packets.Connack{})
	c.WaitConnected()
	results := make(chan error, 2)
	go func() { results <- c.Publish(context.Background(), topic, transporttest.Event("stuck", 15<<20)) }()
	// The first byte of the PUBLISH is there, the others are more than any buffer holds.
	for first := make([]byte, 1); first[0] != packets.PUBLISH<<4|1<<1; {
		if _, err := conn.Read(first); err != nil {
			t.Fatal(err)
		}
	}
	go func() { results <- c.Publish(context.Background(), topic, transporttest.Event("behind", 64)) }()
	c.Stop()
	for range cap(results) {
		if err := kit.Receive(t, "a publish", results); !errors.Is(err, transport.ErrNotConnected) {
			t.Errorf("publish gives %v", err)
		}
	}
}

// A broker that does not answer at all is noticed, and left.
func TestSilentBroker(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", func(c *mqtt.Config) { c.Broker.KeepAlive = time.Second }))
	b.accept(t, &packets.Connack{})
	c.WaitConnected()
	if reason := c.WaitLost(); !strings.Contains(reason.Error(), "does not answer") {
		t.Errorf("the loss has reason %v", reason)
	}
}

// Neither a broker that accepts and says nothing, nor a context that ends while that is waited for,
// holds up Run.
func TestEndWhileConnecting(t *testing.T) {
	b := startFake(t)
	c := transporttest.Start(t, client(t, b.addr, "cluster1", nil))
	b.next(t)
	c.Stop()
}

func TestNewRefuses(t *testing.T) {
	_, err := mqtt.New(mqtt.Config{ReloadInterval: -1, Broker: config.Config{BrokerHost: "nonsense"}})
	for _, want := range []string{"ClientID", "ReloadInterval", "brokerHost"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %s: %v", want, err)
		}
	}
}

// A Conn acknowledges what it receives, and says why it has ended.
func TestConn(t *testing.T) {
	b := startFake(t)
	dialed, topics := make(chan *mqtt.Conn, 1), make(chan string, 1)
	go func() {
		c, err := mqtt.Dial(context.Background(), brokerAt(b.addr), "workctl", func(m mqtt.Received) { topics <- m.Topic })
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	conn := b.accept(t, &packets.Connack{})
	c := kit.Receive(t, "the connection", dialed)
	if err := c.Err(); err != nil {
		t.Errorf("while it is connected, its error is %v", err)
	}
	conn.publish(7, topic, "{}", eventProperties("one"))
	if got := kit.Receive(t, "the message", topics); got != topic {
		t.Errorf("received on %s", got)
	}
	if p := read[*packets.Puback](conn); p.PacketID != 7 {
		t.Errorf("acknowledged %s", p)
	}
	conn.disconnect(0x8B)
	kit.Receive(t, "the end", c.Done())
	if err := c.Err(); err == nil || !strings.Contains(err.Error(), "0x8B: server shutting down") {
		t.Errorf("it ended with %v", err)
	}
	if _, err := c.Publish(context.Background(), topic, transporttest.Event("late", 64)); !errors.Is(err, transport.ErrNotConnected) {
		t.Errorf("publish after the end gives %v", err)
	}
	c.Close()
}
