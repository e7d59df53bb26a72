package broker_test

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const (
	specTopic  = "sources/hub1/clusters/c1/sourceevents"
	specFilter = "sources/+/clusters/c1/sourceevents"
)

// numbers returns "prefix 0" to "prefix n-1".
func numbers(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(prefix, " ", i))
	}
	return out
}

// brokers returns functions that start each of the two brokers.
func brokers() map[string]func(testing.TB) *brokertest.Running {
	return map[string]func(testing.TB) *brokertest.Running{
		"work-broker": func(t testing.TB) *brokertest.Running { return brokertest.Start(t, broker.Config{Users: users()}) },
		"mosquitto":   func(t testing.TB) *brokertest.Running { return brokertest.StartMosquitto(t, users()) },
	}
}

func TestOfflineSessionGetsEverythingInOrder(t *testing.T) {
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			agent := dial(t, b.Addr, options{user: "c1", expiry: 3600})
			agent.mustSubscribe(specFilter)
			agent.drop()

			want := numbers("work", 10_000)
			began := time.Now()
			dial(t, b.Addr, options{user: "hub1"}).publishMany(specTopic, want)
			t.Logf("queued %d messages in %v", len(want), time.Since(began))

			began = time.Now()
			b.Restart(t)
			t.Logf("restarted in %v", time.Since(began))

			began = time.Now()
			agent = dial(t, b.Addr, options{user: "c1", expiry: 3600})
			if !agent.connack.SessionPresent {
				t.Fatal("the session did not survive the restart")
			}
			got := agent.payloads(len(want))
			t.Logf("delivered in %v", time.Since(began))
			if !slices.Equal(got, want) {
				t.Error("the messages came in another order, or more than once")
			}
		})
	}
}

func TestSlowSubscriberGetsEverythingInOrder(t *testing.T) {
	for name, expiry := range map[string]uint32{"with a session": 3600, "without a session": 0} {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, broker.Config{Users: users()})
			agent := dial(t, b.Addr, options{user: "c1", expiry: expiry, manual: true, receiveMaximum: 10})
			agent.mustSubscribe(specFilter)
			want := numbers("work", 10_000)
			dial(t, b.Addr, options{user: "hub1"}).publishMany(specTopic, want)

			// Everything is published; the agent now takes it, ten at a time.
			for n := range want {
				agent.await("receiving a message", func() bool { return len(agent.received) > n })
				agent.mu.Lock()
				p, ahead := agent.received[n], len(agent.received)-n
				agent.mu.Unlock()
				if ahead > 10 {
					t.Fatalf("%d messages unacknowledged; the client takes 10", ahead)
				}
				kit.NoError(t, agent.Ack(p))
			}
			if got := agent.payloads(len(want)); !slices.Equal(got, want) {
				t.Errorf("the messages came in another order, or more than once")
			}
		})
	}
}

func TestUnacknowledgedMessagesAreSentAgain(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0"})
	agent := dial(t, b.Addr, options{user: "c1", expiry: 3600, manual: true})
	agent.mustSubscribe(specFilter)
	want := numbers("work", 5)
	source := dial(t, b.Addr, options{user: "hub1"})
	source.publishMany(specTopic, want)
	if got := agent.payloads(5); !slices.Equal(got, want) {
		t.Fatalf("got %v", got)
	}
	for _, p := range agent.received[:2] {
		kit.NoError(t, agent.Ack(p))
	}
	first := agent.received[2].PacketID
	kit.True(t, "the acknowledgements", func() bool { return scrape(t, b, "workwire_broker_messages_queued") == 3 })
	agent.drop()

	agent = dial(t, b.Addr, options{user: "c1", expiry: 3600})
	source.publish(specTopic, "work 5")
	if got := agent.payloads(4); !slices.Equal(got, []string{"work 2", "work 3", "work 4", "work 5"}) {
		t.Errorf("after reconnecting got %v", got)
	}
	if p := agent.received[0]; p.PacketID != first || !p.Duplicate() {
		t.Errorf("the repeated message has packet id %d and dup %v; MQTT wants %d and true", p.PacketID, p.Duplicate(), first)
	}
	if agent.received[3].Duplicate() {
		t.Error("a new message is marked as a duplicate")
	}
}

// TestFullQueueEndsTheSession checks that a session above its limits ends as a whole: its client
// receives the reason of the disconnect, or finds no session, and resyncs.
func TestFullQueueEndsTheSession(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), MaxQueuedMessages: 10, HTTPAddress: "127.0.0.1:0"})
	online := dial(t, b.Addr, options{user: "c1", expiry: 3600, manual: true})
	online.mustSubscribe(specFilter)
	offline := dial(t, b.Addr, options{user: "c1", clientID: "other", expiry: 3600})
	offline.mustSubscribe(specFilter)
	offline.drop()
	calm := dial(t, b.Addr, options{user: "c2", expiry: 3600})
	calm.mustSubscribe("sources/+/clusters/c2/sourceevents")

	source := dial(t, b.Addr, options{user: "hub1"})
	source.publishMany(specTopic, numbers("work", 11))
	if code := online.disconnectCode(); code != 0x97 {
		t.Errorf("the client was disconnected with 0x%x, want 0x97 (quota exceeded)", code)
	}
	for _, id := range []string{"c1", "other"} {
		if c := dial(t, b.Addr, options{user: "c1", clientID: id, expiry: 3600}); c.connack.SessionPresent {
			t.Errorf("client %s finds a session although its messages are lost", id)
		}
	}
	if code := source.publish("sources/hub1/clusters/c2/sourceevents", "fine"); code >= 0x80 {
		t.Errorf("another cluster suffers: publish refused with 0x%x", code)
	}
	calm.payloads(1)
	if got := scrape(t, b, "workwire_broker_messages_dropped_total", "reason=queue_full"); got != 22 {
		t.Errorf("dropped messages counted: %v, want 22", got)
	}
}

// TestTakeoverOfAClientThatDoesNotRead checks that a client can reconnect at once while the broker
// blocks in writing to its dead connection.
func TestTakeoverOfAClientThatDoesNotRead(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	dead := dialRaw(t, b.Addr, "c1")
	dead.Connect("c1", 3600)
	dead.Subscribe(specFilter)
	// From here on dead reads nothing. 20 MiB fill all buffers.
	source := dial(t, b.Addr, options{user: "hub1"})
	big := strings.Repeat("x", 500<<10)
	for range 40 {
		source.publish(specTopic, big)
	}
	start := time.Now()
	again := dial(t, b.Addr, options{user: "c1", expiry: 3600})
	if took := time.Since(start); took > 25*time.Second { // a write that nobody cuts short blocks for 30 s
		t.Errorf("taking the session over took %v", took)
	}
	if !again.connack.SessionPresent {
		t.Error("the session was lost")
	}
	again.payloads(40)
}

func TestTakeoverDisconnectsThePreviousClient(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	first := dial(t, b.Addr, options{user: "c1"})
	dial(t, b.Addr, options{user: "c1"})
	if code := first.disconnectCode(); code != 0x8e {
		t.Errorf("disconnected with 0x%x, want 0x8e (session taken over)", code)
	}
}

func TestSessionExpires(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), HTTPAddress: "127.0.0.1:0"})
	agent := dial(t, b.Addr, options{user: "c1", expiry: 1})
	agent.mustSubscribe(specFilter)
	agent.drop()
	kit.True(t, "the session to expire", func() bool { return scrape(t, b, "workwire_broker_sessions") == 0 })
	if c := dial(t, b.Addr, options{user: "c1", expiry: 1}); c.connack.SessionPresent {
		t.Error("the session is still there")
	}
}

// TestDisconnectChangesExpiry changes the session expiry with DISCONNECT; 0 ends the session.
func TestDisconnectChangesExpiry(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	zero, hour := uint32(0), uint32(3600)
	agent := dial(t, b.Addr, options{user: "c1", expiry: 3600})
	_ = agent.Disconnect(&paho.Disconnect{Properties: &paho.DisconnectProperties{SessionExpiryInterval: &hour}})
	agent = dial(t, b.Addr, options{user: "c1", expiry: 3600})
	if !agent.connack.SessionPresent {
		t.Error("no session although the expiry was an hour")
	}
	_ = agent.Disconnect(&paho.Disconnect{Properties: &paho.DisconnectProperties{SessionExpiryInterval: &zero}})
	agent = dial(t, b.Addr, options{user: "c1"})
	if agent.connack.SessionPresent {
		t.Error("a session although the expiry was set to 0")
	}
	raw := dialRaw(t, b.Addr, "c2")
	raw.Connect("c2", 0)
	raw.Send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: &hour}})
	if answer, ok := raw.Next().(*packets.Disconnect); !ok || answer.ReasonCode != 0x82 {
		t.Errorf("raising the expiry from 0 was answered with %v, want reason 0x82 (protocol error)", answer)
	}
}

// TestPropertiesAreForwarded checks that properties are forwarded completely and in order, even to
// a client that requests no problem information. CloudEvents attributes are user properties.
func TestPropertiesAreForwarded(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	sent := &paho.PublishProperties{
		ContentType:     "application/json",
		ResponseTopic:   "answer/here",
		CorrelationData: []byte{1, 0, 2},
		PayloadFormat:   paho.Byte(1),
		MessageExpiry:   paho.Uint32(1000),
		User:            paho.UserProperties{{Key: "ce-id", Value: "1"}, {Key: "ce-source", Value: "hub1"}, {Key: "ce-id", Value: "2"}},
	}
	for _, restart := range []bool{false, true} {
		agent := dial(t, b.Addr, options{user: "c1", expiry: 3600, noProblemInfo: true})
		agent.mustSubscribe(specFilter)
		if restart {
			agent.drop()
		}
		source := dial(t, b.Addr, options{user: "hub1"})
		source.publishPacket(&paho.Publish{Topic: specTopic, QoS: 1, Payload: []byte("x"), Properties: sent})
		if restart {
			b.Restart(t)
			agent = dial(t, b.Addr, options{user: "c1", expiry: 3600, noProblemInfo: true})
		}
		agent.payloads(1)
		p := agent.received[0]
		got := p.Properties
		if p.Topic != specTopic || got.ContentType != sent.ContentType || got.ResponseTopic != sent.ResponseTopic ||
			string(got.CorrelationData) != string(sent.CorrelationData) || got.PayloadFormat == nil || *got.PayloadFormat != 1 ||
			got.MessageExpiry == nil || *got.MessageExpiry > 1000 || *got.MessageExpiry < 900 || !slices.Equal(got.User, sent.User) {
			t.Errorf("restart %v: got %+v, want %+v", restart, got, sent)
		}
	}
}

func TestSharedSubscription(t *testing.T) {
	log := &kit.Log{}
	b := brokertest.Start(t, broker.Config{Users: users(), Logger: log.Logger()})
	filter := "$share/replicas/sources/hub1/clusters/+/agentevents"
	gone := dial(t, b.Addr, options{user: "hub1", clientID: "gone", expiry: 3600})
	gone.mustSubscribe(filter)
	gone.drop()
	log.Await(t, "client disconnected") // until then it is a member that is connected
	one := dial(t, b.Addr, options{user: "hub1", clientID: "one"})
	one.mustSubscribe(filter)
	two := dial(t, b.Addr, options{user: "hub1", clientID: "two"})
	two.mustSubscribe(filter)
	want := numbers("status", 100)
	dial(t, b.Addr, options{user: "c1"}).publishMany("sources/hub1/clusters/c1/agentevents", want)

	all := func() []string {
		var got []string
		for _, c := range []*client{one, two} {
			c.mu.Lock()
			for _, p := range c.received {
				got = append(got, string(p.Payload))
			}
			c.mu.Unlock()
		}
		return got
	}
	kit.True(t, "all messages at the two connected members", func() bool { return len(all()) >= len(want) })
	got := all()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the members got %d messages for %d", len(got), len(want))
	}
}

func TestWillIsPublished(t *testing.T) {
	will := &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", QoS: 1, Payload: []byte("gone")}
	for name, test := range map[string]struct {
		end  func(*testing.T, *client)
		want bool
	}{
		"connection lost":          {func(_ *testing.T, c *client) { c.drop() }, true},
		"disconnect with will":     {func(_ *testing.T, c *client) { _ = c.Disconnect(&paho.Disconnect{ReasonCode: 4}) }, true},
		"disconnect in good order": {func(_ *testing.T, c *client) { c.leave() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := brokertest.Start(t, broker.Config{Users: users()})
			source := dial(t, b.Addr, options{user: "hub1"})
			source.mustSubscribe("clusters/+/agentbroadcast")
			agent := dial(t, b.Addr, options{user: "c1", will: will})
			test.end(t, agent)
			// Whatever happens, this comes after the will.
			dial(t, b.Addr, options{user: "c1"}).publish("clusters/c1/agentbroadcast", "later")
			want := []string{"later"}
			if test.want {
				want = []string{"gone", "later"}
			}
			if got := source.payloads(len(want)); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestDelayedWill(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1"})
	source.mustSubscribe("clusters/+/agentbroadcast")
	will := func(payload string) *paho.WillMessage {
		return &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", QoS: 1, Payload: []byte(payload)}
	}
	// The client reconnects before the delay ends: no will.
	dial(t, b.Addr, options{user: "c1", expiry: 3600, will: will("too early"), willDelay: 1}).drop()
	back := dial(t, b.Addr, options{user: "c1", expiry: 3600, will: will("in time"), willDelay: 1})
	back.drop()
	if got := source.payloads(1); !slices.Equal(got, []string{"in time"}) {
		t.Errorf("got %v", got)
	}
}

func TestStopWithClients(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users()})
	source := dial(t, b.Addr, options{user: "hub1", expiry: 3600})
	source.mustSubscribe("clusters/+/agentbroadcast")
	agent := dial(t, b.Addr, options{user: "c1", will: &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", QoS: 1, Payload: []byte("x")}})
	silent, err := net.Dial("tcp", b.Addr) // never says CONNECT
	kit.NoError(t, err)
	defer func() { _ = silent.Close() }()
	b.Stop()
	if code := agent.disconnectCode(); code != 0x8b {
		t.Errorf("disconnected with 0x%x, want 0x8b (server shutting down)", code)
	}
	b.Restart(t)
	source = dial(t, b.Addr, options{user: "hub1", expiry: 3600})
	dial(t, b.Addr, options{user: "c1"}).publish("clusters/c1/agentbroadcast", "after")
	if got := source.payloads(1); got[0] != "after" {
		t.Errorf("a broker that ends published the will %q", got[0])
	}
}

// TestTotalLimitEndsTheLargestSession checks that queues that exceed the limit of all together cost
// the client with the largest one its session, and nobody else anything.
func TestTotalLimitEndsTheLargestSession(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: users(), MaxTotalBytes: 2 << 20, HTTPAddress: "127.0.0.1:0"})
	for _, user := range []string{"c1", "c2"} {
		c := dial(t, b.Addr, options{user: user, expiry: 3600})
		c.mustSubscribe("sources/+/clusters/" + user + "/sourceevents")
		c.drop()
	}
	source := dial(t, b.Addr, options{user: "hub1"})
	source.publish("sources/hub1/clusters/c2/sourceevents", "kept")
	large := strings.Repeat("x", 500<<10)
	for range 5 {
		if code := source.publish(specTopic, large); code >= 0x80 {
			t.Errorf("publish refused with 0x%x", code)
		}
	}
	if c := dial(t, b.Addr, options{user: "c1", expiry: 3600}); c.connack.SessionPresent {
		t.Error("the largest session is still there")
	}
	if got := dial(t, b.Addr, options{user: "c2", expiry: 3600}).payloads(1); got[0] != "kept" {
		t.Errorf("the other client received %q", got)
	}
	if got := scrape(t, b, "workwire_broker_messages_dropped_total", "reason=store_full"); got != 5 {
		t.Errorf("dropped messages counted: %v, want 5", got)
	}
	if got := scrape(t, b, "workwire_broker_store_failing"); got != 0 {
		t.Errorf("store_failing is %v on a disk with room", got)
	}
}

// TestServerReference checks that a broker that stops refers its clients to another one, and serves
// them until then.
func TestServerReference(t *testing.T) {
	const other = "other.example.com:8883"
	b := brokertest.Start(t, broker.Config{Users: users(), Drain: &broker.Drain{ServerReference: other, OnStop: true}})
	raw := dialRaw(t, b.Addr, "c1")
	raw.Connect("c1", 0)
	raw.Subscribe(specFilter)
	b.Stop()
	if d, ok := raw.Next().(*packets.Disconnect); !ok || d.ReasonCode != 0x9c || d.Properties.ServerReference != other {
		t.Errorf("disconnected with %v", d)
	}
}
