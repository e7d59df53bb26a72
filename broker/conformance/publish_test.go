package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// wantProps fails the test unless p has these properties, each once.
func wantProps(t *testing.T, p *mqttraw.Received, want ...mqttraw.Property) {
	t.Helper()
	for _, w := range want {
		if got := p.All(w.ID); !slices.Equal(got, []mqttraw.Property{w}) {
			t.Errorf("property %x: %v, want %v", w.ID, got, w)
		}
	}
}

// wantUser fails the test unless p has exactly these user properties in this order.
func wantUser(t *testing.T, p *mqttraw.Received, want ...string) {
	t.Helper()
	var got []string
	for _, u := range p.All(mqttraw.UserProperty) {
		got = append(got, u.Key+"="+u.Value)
	}
	if !slices.Equal(got, want) {
		t.Errorf("user properties %q, want %q", got, want)
	}
}

// TestProperties checks that properties are forwarded unchanged and in order (MQTT-3.3.2-4, 3.3.2-15
// to 3.3.2-20), and none is added.
func TestProperties(t *testing.T) {
	t.Parallel()
	addr := start(t)
	quiet := as("c1") // asks for no problem information: user properties of a PUBLISH come all the same
	quiet.Props = [][]byte{mqttraw.PropByte(mqttraw.RequestProblem, 0)}
	agent := connect(t, addr, quiet).mustSubscribe(downFilter("c1"))
	hub := connect(t, addr, as("hub1"))
	hub.mustPublish(down("c1"), "héllo",
		mqttraw.User("z", "1"), mqttraw.PropByte(mqttraw.PayloadFormat, 1), mqttraw.User("a", "2"), mqttraw.PropStr(mqttraw.ResponseTopic, "answers/here"),
		mqttraw.User("z", "1"), mqttraw.PropStr(mqttraw.CorrelationData, "\x00\xff\x01"), mqttraw.PropStr(mqttraw.ContentType, "application/json"),
		mqttraw.User("", ""), mqttraw.User("z", "\ufeff0"), mqttraw.PropFour(mqttraw.MessageExpiry, 5000))
	p := agent.receive()
	wantProps(t, p, mqttraw.Property{ID: mqttraw.PayloadFormat, N: 1}, mqttraw.Property{ID: mqttraw.ResponseTopic, Value: "answers/here"},
		mqttraw.Property{ID: mqttraw.CorrelationData, Value: "\x00\xff\x01"}, mqttraw.Property{ID: mqttraw.ContentType, Value: "application/json"})
	wantUser(t, p, "z=1", "a=2", "z=1", "=", "z=\ufeff0")
	if expiry, ok := p.Prop(mqttraw.MessageExpiry); !ok || expiry.N > 5000 || expiry.N < 4000 {
		t.Errorf("message expiry %v, want nearly 5000", expiry)
	}
	hub.mustPublish(down("c1"), "")
	if p := agent.receive(); len(p.Props) > 0 || p.Payload != "" {
		t.Errorf("an empty message becomes %v", p)
	}
	many := make([][]byte, 60)
	var want []string
	for i := range many {
		many[i] = mqttraw.User(fmt.Sprint(i%7), fmt.Sprint(i))
		want = append(want, fmt.Sprintf("%d=%d", i%7, i))
	}
	hub.mustPublish(down("c1"), "many", many...)
	wantUser(t, agent.receive(), want...)

	if code := agent.publish(up("c2"), "x"); code != 0x87 {
		t.Errorf("publish to the topic of another: %x", code)
	}
	id := agent.id()
	agent.Send(mqttraw.Publish(mqttraw.QoS1, id, up("c2"), "x"))
	if ack := agent.Expect(mqttraw.PUBACK); len(ack.Props) > 0 {
		t.Errorf("problem information that the client does not want, MQTT-3.1.2-29: %v", ack)
	}
}

// TestQoS checks both flows, and that a message is delivered with the lower of the QoS it was
// published and subscribed with (MQTT-3.8.4-8), in order (MQTT-4.6.0-5).
func TestQoS(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub := connect(t, addr, as("hub1"))
	for granted := range byte(2) {
		agent := connect(t, addr, as("c1"))
		if codes := agent.subscribe(mqttraw.Filter{Topic: downFilter("c1"), Options: granted}); codes[0] != granted {
			t.Fatalf("asked for QoS %d, granted %x", granted, codes)
		}
		for published := range byte(2) {
			hub.Send(mqttraw.Publish(published<<1, 7, down("c1"), fmt.Sprint(published)))
			if published == 1 {
				if ack := hub.Expect(mqttraw.PUBACK); ack.ID != 7 || ack.Code() != 0 {
					t.Errorf("acknowledged with %v", ack)
				}
			}
			if p := agent.receive(); p.Payload != fmt.Sprint(published) || p.QoS() != min(published, granted) || p.Flags&(mqttraw.Dup|mqttraw.Retain) != 0 {
				t.Errorf("published with QoS %d, subscribed with %d, received %v", published, granted, p)
			}
		}
		agent.leave()
	}
	agent := connect(t, addr, as("c1"))
	if codes := agent.subscribe(mqttraw.Filter{Topic: downFilter("c1"), Options: 2}); codes[0] != 1 { // MQTT-3.2.2-10
		t.Errorf("asked for QoS 2, granted %x, want 1", codes)
	}

	const count = 200
	for _, flags := range []byte{0, mqttraw.QoS1} {
		var burst []byte
		for i := range count {
			burst = append(burst, mqttraw.Publish(flags, uint16(i+1), down("c1"), fmt.Sprint(i))...)
		}
		hub.Send(burst)
		for i := range count {
			agent.mustReceive(fmt.Sprint(i))
		}
	}
	for i := range count {
		if ack := hub.Expect(mqttraw.PUBACK); ack.ID != uint16(i+1) {
			t.Fatalf("PUBACK %d, want %d", ack.ID, i+1)
		}
	}
	hub.Send(mqttraw.Publish(mqttraw.QoS1|mqttraw.Dup, 9, down("c1"), "again"))
	hub.Expect(mqttraw.PUBACK)
	if p := agent.receive(); p.Payload != "again" || p.Flags&mqttraw.Dup != 0 {
		t.Errorf("DUP is forwarded, MQTT-3.3.1-3: %v", p)
	}
}

// TestNoSubscriber: the broker says when no session takes a message (section 3.4.2.1, 0x10); one of an
// absent client does.
func TestNoSubscriber(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub, agent := connect(t, addr, as("hub1")), connect(t, addr, as("c1"))
	expect := func(when string, want byte) {
		t.Helper()
		if code := hub.publish(down("c1"), "spec"); code != want {
			t.Errorf("%s: acknowledged with %x, want %x", when, code, want)
		}
	}
	expect("before the subscription", 0x10)
	agent.subscribe(mqttraw.Filter{Topic: downFilter("c1"), Options: 1})
	expect("subscribed", 0)
	agent.mustReceive("spec")
	agent.leave()
	expect("the session has ended", 0x10)
}

// TestMessageExpiry checks MQTT-3.3.2-5 and 3.3.2-6.
func TestMessageExpiry(t *testing.T) {
	t.Parallel()
	addr := start(t)
	connect(t, addr, durable(as("c1"))).mustSubscribe(downFilter("c1")).drop()
	hub := connect(t, addr, as("hub1"))
	present := connect(t, addr, as("c2")).mustSubscribe(downFilter("c2"))
	hub.mustPublish(down("c2"), "now", mqttraw.PropFour(mqttraw.MessageExpiry, 0))
	if p := present.receive(); p.Payload != "now" {
		t.Errorf("received %v", p)
	} else if left, ok := p.Prop(mqttraw.MessageExpiry); !ok || left.N != 0 {
		t.Errorf("the expiry interval is %v, want 0", left)
	}
	hub.publish(down("c1"), "expired", mqttraw.PropFour(mqttraw.MessageExpiry, 0))
	hub.mustPublish(down("c1"), "short", mqttraw.PropFour(mqttraw.MessageExpiry, 1))
	hub.mustPublish(down("c1"), "long", mqttraw.PropFour(mqttraw.MessageExpiry, 1000))
	hub.mustPublish(down("c1"), "none")
	published := time.Now()
	<-time.After(2100 * time.Millisecond) // the time itself is what is tested
	waited := uint32(time.Since(published).Seconds())
	agent := connect(t, addr, durable(as("c1")))
	p := agent.receive()
	if left, ok := p.Prop(mqttraw.MessageExpiry); p.Payload != "long" || !ok || left.N > 1000-waited+1 || left.N < 800 {
		t.Errorf("after %d s received %v", waited, p)
	}
	agent.mustReceive("none")
}

// TestReceiveMaximumOfClient checks that no more messages are unacknowledged than the client accepts
// (MQTT-3.3.4-9), also after a reconnect, and other packets are not delayed (MQTT-3.3.4-10).
func TestReceiveMaximumOfClient(t *testing.T) {
	t.Parallel()
	addr := start(t)
	connecting := durable(as("c1"))
	connecting.Props = append(connecting.Props, mqttraw.PropTwo(mqttraw.ReceiveMaximum, 2))
	agent := connect(t, addr, connecting).mustSubscribe(downFilter("c1"))
	hub := connect(t, addr, as("hub1"))
	for i := range 6 {
		hub.mustPublish(down("c1"), fmt.Sprint(i))
	}
	check := func(next int) {
		t.Helper()
		var ids []uint16
		for i := range 2 {
			p := agent.Expect(mqttraw.PUBLISH)
			if p.Payload != fmt.Sprint(next+i) {
				t.Fatalf("received %v, want %d", p, next+i)
			}
			ids = append(ids, p.ID)
		}
		agent.ping()
		agent.ping()
		agent.Send(mqttraw.Puback(ids[1])) // the order of acknowledgements is the client's
		if p := agent.Expect(mqttraw.PUBLISH); p.Payload != fmt.Sprint(next+2) {
			t.Fatalf("received %v, want %d", p, next+2)
		}
		agent.ping()
		agent.Send(mqttraw.Puback(ids[0]))
		if p := agent.Expect(mqttraw.PUBLISH); p.Payload != fmt.Sprint(next+3) {
			t.Fatalf("received %v, want %d", p, next+3)
		}
		agent.ping()
	}
	check(0)
	agent.drop()
	agent = connect(t, addr, connecting)
	check(2)
}

// TestReceiveMaximumOfBroker checks that a client that uses the broker's receive maximum fully is
// served (MQTT-3.3.4-7).
func TestReceiveMaximumOfBroker(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, as("c1"))
	limit, _ := agent.connack.Prop(mqttraw.ReceiveMaximum)
	most := int(min(limit.N, 500))
	var burst []byte
	for i := range most {
		burst = append(burst, mqttraw.Publish(mqttraw.QoS1, uint16(i+1), up("c1"), "x")...)
	}
	for range 3 {
		agent.Send(burst)
		for i := range most {
			if ack := agent.Expect(mqttraw.PUBACK); int(ack.ID) != i+1 {
				t.Fatalf("PUBACK %d, want %d", ack.ID, i+1)
			}
		}
	}
}

// TestReceiveMaximumExceeded checks that a client that sends more than the broker's receive maximum
// before it is acknowledged is told so (0x93). Messages are acknowledged when they are on disk, which
// takes longer than to send them, if not each time.
func TestReceiveMaximumExceeded(t *testing.T) {
	t.Parallel()
	addr := start(t)
	connect(t, addr, durable(as("c1"))).mustSubscribe(downFilter("c1")).leave()
	for range 50 {
		hub := connect(t, addr, as("hub1"))
		limit, known := hub.connack.Prop(mqttraw.ReceiveMaximum)
		if !known {
			t.Fatalf("no receive maximum: %v", hub.connack)
		}
		var burst []byte
		for i := range int(limit.N) * 2 {
			burst = append(burst, mqttraw.Publish(mqttraw.QoS1, uint16(i+1), down("c1"), "")...)
		}
		hub.Send(burst)
		for next := uint16(1); int(next) <= int(limit.N)*2; next++ {
			p := hub.Next()
			if p.Type == mqttraw.DISCONNECT && p.Code() == 0x93 {
				hub.ExpectEnd()
				return
			}
			if p.Type != mqttraw.PUBACK || p.ID != next || p.Code() != 0 {
				t.Fatalf("got %v, want PUBACK %d or DISCONNECT 93", p, next)
			}
		}
		hub.leave()
	}
	t.Error("the maximum was never exceeded")
}

// TestMaximumPacketSizeOfClient checks that no packet is larger than the client accepts
// (MQTT-3.1.2-24): a message that is larger is not delivered at all, counts as delivered
// (MQTT-3.1.2-25), and other packets lose their reason string (MQTT-3.4.2-2).
func TestMaximumPacketSizeOfClient(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub := connect(t, addr, as("hub1"))
	message := func(size int) {
		t.Helper()
		hub.mustPublish(down("c1"), strings.Repeat("x", size), mqttraw.User("ce-id", "1"), mqttraw.User("ce-type", "t"), mqttraw.PropStr(mqttraw.ContentType, "text"))
	}
	limited := func(limit int) *client {
		t.Helper()
		c := durable(as("c1"))
		c.Props = append(c.Props, mqttraw.PropFour(mqttraw.MaximumPacket, uint32(limit)))
		return connect(t, addr, c)
	}
	agent := connect(t, addr, durable(as("c1"))).mustSubscribe(downFilter("c1"))
	message(100)
	size := len(agent.receive().Raw)
	agent.ping()
	agent.leave()

	for _, queued := range []bool{true, false} {
		for _, limit := range []int{size, size - 1, size - 30} {
			var agent *client
			if !queued {
				agent = limited(limit)
			}
			message(100)
			message(100 - size + limit) // exactly as large as is accepted
			message(101)
			message(1)
			if queued {
				agent = limited(limit)
			}
			want := []int{100 - size + limit, 1}
			if limit == size {
				want = []int{100, 100, 1}
			}
			for _, length := range want {
				p := agent.receive()
				if len(p.Payload) != length || len(p.Raw) > limit {
					t.Errorf("limit %d, queued %v: received %d bytes, want a payload of %d: %v", limit, queued, len(p.Raw), length, p)
				}
				wantUser(t, p, "ce-id=1", "ce-type=t")
				wantProps(t, p, mqttraw.Property{ID: mqttraw.ContentType, Value: "text"})
			}
			agent.ping()
			agent.leave()
		}
	}
	again := connect(t, addr, durable(as("c1"))) // without a limit, and nothing is left
	message(2)
	if p := again.receive(); len(p.Payload) != 2 {
		t.Errorf("received %v, which was too large before", p)
	}
	again.leave()

	small := limited(60)
	if code := small.publish(up("c2"), "x"); code != 0x87 {
		t.Errorf("publish to the topic of another: %x", code)
	}
}

// TestSmallestPackets checks MQTT-3.1.2-24 with limits that not even a CONNACK keeps.
func TestSmallestPackets(t *testing.T) {
	t.Parallel()
	addr := start(t)
	for limit := range 60 {
		c := mqttraw.Dial(t, addr)
		connecting := as("c2")
		connecting.Props = [][]byte{mqttraw.PropFour(mqttraw.MaximumPacket, uint32(limit+1))}
		c.Send(connecting.Bytes(), mqttraw.Publish(mqttraw.QoS1, 1, up("c1"), "x"), mqttraw.Subscribe(2, nil, mqttraw.Filter{Topic: "#"}), mqttraw.Packet(mqttraw.AUTH))
		for {
			p, err := mqttraw.Read(c.Reader)
			if err != nil {
				break
			}
			if len(p.Raw) > limit+1 {
				t.Errorf("limit %d: a packet of %d bytes: %v", limit+1, len(p.Raw), p)
			}
		}
	}
}

// TestMaximumPacketSizeOfBroker checks that a packet of exactly the maximum is served, and a larger
// one ends the connection with 0x95.
func TestMaximumPacketSizeOfBroker(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, as("c1")).mustSubscribe(downFilter("c1"))
	hub := connect(t, addr, as("hub1"))
	limit, _ := hub.connack.Prop(mqttraw.MaximumPacket)
	packet := func(size int) []byte {
		empty := len(mqttraw.Publish(mqttraw.QoS1, 1, down("c1"), strings.Repeat("x", size/2))) - size/2
		p := mqttraw.Publish(mqttraw.QoS1, 1, down("c1"), strings.Repeat("x", size-empty))
		for len(p) < size {
			empty--
			p = mqttraw.Publish(mqttraw.QoS1, 1, down("c1"), strings.Repeat("x", size-empty))
		}
		if len(p) != size {
			t.Fatalf("a packet of %d bytes, want %d", len(p), size)
		}
		return p
	}
	hub.Send(packet(int(limit.N)))
	if ack := hub.Expect(mqttraw.PUBACK); ack.Code() >= 0x80 {
		t.Errorf("a packet of the maximum size is refused: %v", ack)
	}
	agent.receive()
	hub.Send(packet(int(limit.N) + 1)[:1000]) // the header is enough
	hub.ExpectDisconnect(0x95)
	agent.ping()
}
