package conformance_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

// TestSessionPresent checks clean start, session expiry and session present (MQTT-3.1.2-4 to 6,
// 3.1.2-23, 3.2.2-2, 3.2.2-3).
func TestSessionPresent(t *testing.T) {
	t.Parallel()
	addr := start(t)
	clean := func(c mqttraw.Connect) mqttraw.Connect { c.Clean = true; return c }
	leave := (*client).leave
	drop := (*client).drop
	bye := func(packet []byte) func(*client) {
		return func(c *client) { c.Send(packet); c.ExpectEnd() }
	}
	expiry := func(seconds uint32) []byte {
		return mqttraw.Disconnect(0, mqttraw.PropFour(mqttraw.SessionExpiry, seconds))
	}
	for i, test := range []struct {
		name        string
		first, next func(mqttraw.Connect) mqttraw.Connect
		end         func(*client)
		present     bool
	}{
		{"no expiry", nil, durable, leave, false},
		{"no expiry, lost", nil, durable, drop, false},
		{"expiry", durable, durable, leave, true},
		{"expiry, lost", durable, durable, drop, true},
		{"expiry, then none", durable, nil, leave, true},
		{"expiry, then clean start", durable, clean, leave, false},
		{"clean start with expiry", func(c mqttraw.Connect) mqttraw.Connect { return clean(durable(c)) }, nil, leave, true},
		{"expiry 0 in DISCONNECT", durable, nil, bye(expiry(0)), false},
		{"shorter expiry in DISCONNECT", durable, nil, bye(expiry(600)), true},
		{"for ever", func(c mqttraw.Connect) mqttraw.Connect {
			c.Props = [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, 0xFFFFFFFF)}
			return c
		}, nil, leave, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			connecting := func(change func(mqttraw.Connect) mqttraw.Connect) mqttraw.Connect {
				c := as("c1")
				c.ClientID = fmt.Sprintf("present-%d", i)
				if change != nil {
					c = change(c)
				}
				return c
			}
			c := connect(t, addr, connecting(test.first))
			if c.connack.Present {
				t.Fatal("a new session is present")
			}
			test.end(c)
			if got := connect(t, addr, connecting(test.next)).connack.Present; got != test.present {
				t.Errorf("session present: %v, want %v", got, test.present)
			}
		})
	}
	t.Run("expiry in DISCONNECT after none", func(t *testing.T) {
		c := connect(t, addr, as("c1"))
		c.Send(expiry(10))
		c.ExpectDisconnect(0x82)
	})
}

// TestOffline checks that a session keeps subscriptions and QoS 1 messages while its client is away,
// in order (MQTT-3.1.2-5, 4.1.0-1, 4.6.0-5), and over a restart of the broker.
func TestOffline(t *testing.T) {
	t.Parallel()
	b := brokertest.Start(t, broker.Config{Users: users()})
	agent := connect(t, b.Addr, durable(as("c1"))).mustSubscribe(downFilter("c1"))
	agent.drop()
	hub := connect(t, b.Addr, as("hub1"))
	for i := range 20 {
		hub.mustPublish(down("c1"), fmt.Sprint(i))
	}
	b.Restart(t)
	agent = connect(t, b.Addr, durable(as("c1")))
	if !agent.connack.Present {
		t.Fatal("no session")
	}
	for i := range 20 {
		agent.mustReceive(fmt.Sprint(i))
	}
	connect(t, b.Addr, as("hub1")).mustPublish(down("c1"), "live")
	agent.mustReceive("live")

	// A clean start discards what is queued.
	agent.drop()
	hub = connect(t, b.Addr, as("hub1"))
	hub.mustPublish(down("c1"), "discarded")
	connecting := durable(as("c1"))
	connecting.Clean = true
	agent = connect(t, b.Addr, connecting).mustSubscribe(downFilter("c1"))
	hub.mustPublish(down("c1"), "after")
	agent.mustReceive("after")
}

// TestRedelivery checks that messages that a client has not acknowledged are sent again when it
// reconnects, first, in order, with DUP and the same identifiers, and those that it has acknowledged
// are not (MQTT-3.3.1-1, 4.4.0-1, 4.6.0-1).
func TestRedelivery(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, durable(as("c1"))).mustSubscribe(downFilter("c1"))
	hub := connect(t, addr, as("hub1"))
	ids := map[string]uint16{}
	for i := range 4 {
		hub.mustPublish(down("c1"), fmt.Sprint(i))
		p := agent.Expect(mqttraw.PUBLISH)
		if p.Flags&mqttraw.Dup != 0 {
			t.Errorf("%s has DUP the first time, MQTT-3.3.1-3", p.Payload)
		}
		ids[p.Payload] = p.ID
	}
	agent.Send(mqttraw.Puback(ids["1"]))
	agent.ping() // the broker has read it
	agent.drop()
	hub.mustPublish(down("c1"), "4")
	agent = connect(t, addr, durable(as("c1")))
	for _, want := range []string{"0", "2", "3"} {
		p := agent.receive()
		if p.Payload != want || p.Flags&mqttraw.Dup == 0 || p.ID != ids[want] {
			t.Errorf("received %v, want %s again with DUP and the identifier %d", p, want, ids[want])
		}
	}
	agent.mustReceive("4")
}

// TestTakeover checks that a second client with the same id disconnects the first (MQTT-3.1.4-3) and
// gets its session, and that clients of other identities do not.
func TestTakeover(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub := connect(t, addr, as("hub1"))
	first := connect(t, addr, durable(as("c1"))).mustSubscribe(downFilter("c1"))
	other := as("c2")
	other.ClientID = "c1"
	bystander := connect(t, addr, other)
	if bystander.connack.Present {
		t.Error("another identity gets the session")
	}
	first.ping()
	hub.mustPublish(down("c1"), "a")
	first.Expect(mqttraw.PUBLISH)
	second := connect(t, addr, durable(as("c1")))
	first.ExpectDisconnect(0x8E)
	if !second.connack.Present {
		t.Error("no session after the takeover")
	}
	second.mustReceive("a")
	bystander.ping()
}

// TestWill checks when a will is published and with what (MQTT-3.1.2-7 to 3.1.2-10, 3.14.4-3).
func TestWill(t *testing.T) {
	t.Parallel()
	addr := start(t)
	send := func(packet ...byte) func(*client) {
		return func(c *client) { c.Send(packet) }
	}
	for _, test := range []struct {
		name      string
		end       func(*client)
		published bool
	}{
		{"DISCONNECT, short", send(0xE0, 0), false},
		{"DISCONNECT 0x00", send(0xE0, 1, 0), false},
		{"DISCONNECT 0x00, long", send(0xE0, 2, 0, 0), false},
		{"DISCONNECT 0x04", send(0xE0, 1, 4), true},
		{"DISCONNECT 0x04, long", send(0xE0, 2, 4, 0), true},
		{"DISCONNECT 0x04 with a reason string", send(mqttraw.Disconnect(4, mqttraw.PropStr(mqttraw.ReasonString, "bye"))...), true},
		{"DISCONNECT 0x80", send(0xE0, 1, 0x80), true},
		{"lost", (*client).drop, true},
		{"protocol error", send(mqttraw.Publish(mqttraw.QoS2, 1, up("c1"), "x")...), true},
		{"malformed packet", send(0xC0, 0x80, 0x80, 0x80, 0x80, 0), true},
		{"keep alive", func(*client) {}, true},
		{"taken over", func(c *client) { connect(c.t, addr, as("c1")).leave() }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := connect(t, addr, as("hub1")).mustSubscribe(upFilter)
			connecting := as("c1")
			if test.name == "keep alive" {
				connecting.KeepAlive = 1
			}
			connecting.Will = &mqttraw.Will{Topic: up("c1"), Payload: test.name, QoS: 1, Props: [][]byte{
				mqttraw.PropByte(mqttraw.PayloadFormat, 1), mqttraw.PropStr(mqttraw.ContentType, "text"), mqttraw.PropStr(mqttraw.ResponseTopic, "answer"),
				mqttraw.PropStr(mqttraw.CorrelationData, "\x00\x01"), mqttraw.User("b", "1"), mqttraw.User("a", "2"), mqttraw.User("b", "3"),
			}}
			c := connect(t, addr, connecting)
			test.end(c)
			if !test.published {
				c.ExpectEnd()
				connect(t, addr, as("c2")).mustPublish(up("c2"), "fence")
				hub.mustReceive("fence")
				return
			}
			p := hub.receive()
			if p.Payload != test.name || p.Topic != up("c1") || p.QoS() != 1 || p.Flags&mqttraw.Retain != 0 {
				t.Errorf("received %v", p)
			}
			wantProps(t, p, mqttraw.Property{ID: mqttraw.PayloadFormat, N: 1}, mqttraw.Property{ID: mqttraw.ContentType, Value: "text"},
				mqttraw.Property{ID: mqttraw.ResponseTopic, Value: "answer"}, mqttraw.Property{ID: mqttraw.CorrelationData, Value: "\x00\x01"})
			wantUser(t, p, "b=1", "a=2", "b=3")
		})
	}
	t.Run("empty payload", func(t *testing.T) {
		hub := connect(t, addr, as("hub1")).mustSubscribe(upFilter)
		connecting := as("c1")
		connecting.Will = &mqttraw.Will{Topic: up("c1"), QoS: 1}
		connect(t, addr, connecting).drop()
		if p := hub.receive(); p.Topic != up("c1") || p.Payload != "" {
			t.Errorf("received %v", p)
		}
	})
}

// TestWillExpiry checks that the message expiry of a will counts from its publication (MQTT-3.3.2-6).
func TestWillExpiry(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub := connect(t, addr, as("hub1")).mustSubscribe(upFilter)
	connecting := as("c1")
	connecting.Will = &mqttraw.Will{Topic: up("c1"), Payload: "gone", QoS: 1, Props: [][]byte{mqttraw.PropFour(mqttraw.MessageExpiry, 1000)}}
	connect(t, addr, connecting).drop()
	p := hub.receive()
	if at, ok := p.Prop(mqttraw.MessageExpiry); !ok || at.N > 1000 || at.N < 800 {
		t.Errorf("received %v, want a message expiry of nearly 1000", p)
	}
}

// TestWillDelay checks that a will waits for its delay or the end of the session, whichever is first,
// and is not published if the client is back before (MQTT-3.1.3-9).
func TestWillDelay(t *testing.T) {
	t.Parallel()
	addr := start(t)
	world := func(t *testing.T) (hub, agent *client) {
		return connect(t, addr, as("hub1")).mustSubscribe(upFilter), connect(t, addr, as("c2"))
	}
	willing := func(delay, expiry uint32) mqttraw.Connect {
		c := as("c1")
		c.Props = [][]byte{mqttraw.PropFour(mqttraw.SessionExpiry, expiry)}
		c.Will = &mqttraw.Will{Topic: up("c1"), Payload: "gone", QoS: 1, Props: [][]byte{mqttraw.PropFour(mqttraw.WillDelay, delay)}}
		return c
	}
	for name, seconds := range map[string][2]uint32{"delay before expiry": {1, 600}, "expiry before delay": {3600, 1}} {
		t.Run(name, func(t *testing.T) {
			hub, agent := world(t)
			c := connect(t, addr, willing(seconds[0], seconds[1]))
			start := time.Now()
			c.drop()
			agent.mustPublish(up("c2"), "fence")
			if p, q := hub.receive().Payload, hub.receive().Payload; p+q != "fencegone" && p+q != "gonefence" {
				t.Errorf("received %s and %s", p, q)
			}
			if took := time.Since(start); took < 900*time.Millisecond {
				t.Errorf("published after %v, want a second", took)
			}
		})
	}
	t.Run("back before", func(t *testing.T) {
		hub, agent := world(t)
		connect(t, addr, willing(3600, 3600)).drop()
		back := willing(0, 3600)
		back.Will = nil
		connect(t, addr, back).drop()
		agent.mustPublish(up("c2"), "fence")
		hub.mustReceive("fence")
	})
	t.Run("clean start ends the session", func(t *testing.T) {
		hub, _ := world(t)
		connect(t, addr, willing(3600, 3600)).drop()
		back := willing(0, 3600)
		back.Will, back.Clean = nil, true
		connect(t, addr, back).drop()
		hub.mustReceive("gone")
	})
	t.Run("session without expiry", func(t *testing.T) {
		hub, _ := world(t)
		connect(t, addr, willing(3600, 0)).drop()
		hub.mustReceive("gone")
	})
}
