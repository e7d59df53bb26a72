package broker_test

import (
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker/brokertest"
)

// TestAccess holds both brokers to the same rules. What counts is what gets through: how a
// broker refuses is its own affair (TestRefusals has work-broker's way).
func TestAccess(t *testing.T) {
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			t.Run("login", func(t *testing.T) { checkLogin(t, b) })
			t.Run("reading", func(t *testing.T) { checkReading(t, b) })
			t.Run("publishing", func(t *testing.T) { checkPublishing(t, b) })
			t.Run("wills", func(t *testing.T) { checkWills(t, b) })
			t.Run("retained", func(t *testing.T) { checkRetained(t, b) })
			t.Run("client ids", func(t *testing.T) { checkClientIDs(t, b) })
		})
	}
}

func checkLogin(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	for name, o := range map[string]options{
		"anonymous":      {anonymous: true, clientID: "x"},
		"wrong password": {user: "c1", password: "wrong"},
		"no password":    {user: "c1", password: "-"},
		"unknown user":   {user: "nobody"},
	} {
		c, err := tryDial(ctx, t, b.Addr, o)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if c.connack == nil || c.connack.ReasonCode < 0x80 {
			t.Errorf("%s: refused without a reason: %v", name, err)
		}
	}
}

// allTopics has one topic of every kind for source hub1 and cluster c1, with what may be
// done with it by whom.
var allTopics = []struct{ topic, publisher, reader string }{
	{"sources/hub1/clusters/c1/sourceevents", "hub1", "c1"},
	{"sources/hub1/clusters/c1/agentevents", "c1", "hub1"},
	{"sources/hub1/sourcebroadcast", "hub1", "c1"},
	{"clusters/c1/agentbroadcast", "c1", "hub1"},
}

// checkReading publishes on every topic and looks at who gets it, whatever they subscribed to.
func checkReading(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	readers := map[string]*client{}
	for _, user := range []string{"hub1", "hub2", "c1", "c2"} {
		c := dial(ctx, t, b.Addr, options{user: user, clientID: "reader-" + user})
		readers[user] = c
		for _, filter := range []string{
			"#", "+/#", "sources/#", "sources/+/clusters/+/sourceevents", "sources/+/clusters/+/agentevents",
			"$share/g/sources/+/clusters/+/sourceevents", "+/+/+/+/+", "+/+/+", "clusters/#",
			specTopic, "sources/hub1/clusters/c1/agentevents", "$share/g2/" + specTopic,
		} {
			c.subscribe(ctx, t, filter) // what a broker answers is not the point here
		}
	}
	// The proper subscriptions, so that delivery of what is allowed marks the end.
	readers["c1"].mustSubscribe(ctx, t, specFilter)
	readers["c2"].mustSubscribe(ctx, t, "sources/+/clusters/c2/sourceevents")
	readers["hub1"].mustSubscribe(ctx, t, "sources/hub1/clusters/+/agentevents")
	readers["hub2"].mustSubscribe(ctx, t, "sources/hub2/clusters/+/agentevents")

	publishers := map[string]*client{}
	for user := range readers {
		publishers[user] = dial(ctx, t, b.Addr, options{user: user, clientID: "publisher-" + user})
	}
	for _, e := range allTopics[:2] {
		if code := publishers[e.publisher].publish(ctx, t, e.topic, "secret"); code >= 0x80 {
			t.Fatalf("%s may not publish to %s: 0x%x", e.publisher, e.topic, code)
		}
	}
	for _, topic := range []string{"sources/hub1/clusters/c2/sourceevents", "sources/hub2/clusters/c1/sourceevents"} {
		publishers[topic[len("sources/"):len("sources/hub1")]].publish(ctx, t, topic, "end")
	}
	for _, topic := range []string{"sources/hub2/clusters/c1/agentevents", "sources/hub1/clusters/c1/agentevents"} {
		publishers["c1"].publish(ctx, t, topic, "end")
	}
	for user, c := range readers {
		c.await(ctx, t, "the end at "+user, func() bool {
			return len(c.received) > 0 && string(c.received[len(c.received)-1].Payload) == "end"
		})
		c.mu.Lock()
		secret := false
		for _, p := range c.received {
			if string(p.Payload) != "secret" {
				continue
			}
			secret = true
			allowed := false
			for _, e := range allTopics {
				allowed = allowed || e.topic == p.Topic && e.reader == user
			}
			if !allowed {
				t.Errorf("%s received %s", user, p.Topic)
			}
		}
		if wanted := user == "c1" || user == "hub1"; secret != wanted {
			t.Errorf("%s received a message of its own: %v, want %v", user, secret, wanted)
		}
		c.mu.Unlock()
	}
}

// checkPublishing dials anew for every attempt: Mosquitto 2.0.11 ends the connection after it
// has refused a message.
func checkPublishing(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	for _, user := range []string{"hub1", "hub2", "c1", "c2"} {
		for _, e := range allTopics {
			code := dial(ctx, t, b.Addr, options{user: user}).publish(ctx, t, e.topic, "x")
			if allowed := user == e.publisher; allowed != (code < 0x80) {
				t.Errorf("%s publishes to %s: reason 0x%x, allowed %v", user, e.topic, code, allowed)
			}
		}
		for _, topic := range []string{"other", "sources/hub1/clusters/c1/other", "sources/hub1/clusters/c1/sourceevents/more", "$SYS/broker/version"} {
			if code := dial(ctx, t, b.Addr, options{user: user}).publish(ctx, t, topic, "x"); code < 0x80 {
				t.Errorf("%s publishes to %s: reason 0x%x", user, topic, code)
			}
		}
	}
}

// checkWills has every client try to speak as another after its death.
func checkWills(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	agent := dial(ctx, t, b.Addr, options{user: "c1", clientID: "reader-c1"})
	agent.mustSubscribe(ctx, t, specFilter)
	source := dial(ctx, t, b.Addr, options{user: "hub1", clientID: "reader-hub1"})
	source.mustSubscribe(ctx, t, "clusters/+/agentbroadcast")
	source.mustSubscribe(ctx, t, "sources/hub1/clusters/+/agentevents")
	for _, e := range allTopics {
		for _, user := range []string{"hub1", "hub2", "c1", "c2"} {
			if user == e.publisher {
				continue
			}
			c, err := tryDial(ctx, t, b.Addr, options{user: user, clientID: "will", will: &paho.WillMessage{Topic: e.topic, QoS: 1, Payload: []byte("forged by " + user)}})
			if err == nil {
				c.drop()
			}
		}
	}
	// A will of its own goes through, and after all the others.
	dial(ctx, t, b.Addr, options{user: "c1", clientID: "will", will: &paho.WillMessage{Topic: "clusters/c1/agentbroadcast", QoS: 1, Payload: []byte("end")}}).drop()
	if got := source.payloads(ctx, t, 1); got[0] != "end" {
		t.Errorf("the source received %q", got[0])
	}
	dial(ctx, t, b.Addr, options{user: "hub1", clientID: "will"}).publish(ctx, t, specTopic, "end")
	if got := agent.payloads(ctx, t, 1); got[0] != "end" {
		t.Errorf("the agent received %q", got[0])
	}
}

func checkRetained(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	retain := func(user, topic, payload string) byte {
		return dial(ctx, t, b.Addr, options{user: user, clientID: "retain"}).publishPacket(ctx, t,
			&paho.Publish{Topic: topic, QoS: 1, Retain: true, Payload: []byte(payload)})
	}
	if code := retain("hub1", specTopic, "kept"); code >= 0x80 {
		t.Fatalf("retain: 0x%x", code)
	}
	if code := retain("c1", specTopic, "forged"); code < 0x80 {
		t.Error("an agent replaced what a source retained")
	}
	if code := retain("hub2", specTopic, ""); code < 0x80 {
		t.Error("a source deleted what another one retained")
	}
	for user, want := range map[string]string{"c1": "kept", "c2": "end", "hub2": "end"} {
		c := dial(ctx, t, b.Addr, options{user: user, clientID: "reader-" + user})
		c.subscribe(ctx, t, "#")
		c.subscribe(ctx, t, specTopic)
		switch user {
		case "c2":
			c.mustSubscribe(ctx, t, "sources/+/clusters/c2/sourceevents")
			dial(ctx, t, b.Addr, options{user: "hub1"}).publish(ctx, t, "sources/hub1/clusters/c2/sourceevents", "end")
		case "hub2":
			c.mustSubscribe(ctx, t, "sources/hub2/clusters/+/agentevents")
			dial(ctx, t, b.Addr, options{user: "c1"}).publish(ctx, t, "sources/hub2/clusters/c1/agentevents", "end")
		}
		if got := c.payloads(ctx, t, 1); got[0] != want {
			t.Errorf("%s received %q, want %q", user, got[0], want)
		}
	}
	retain("hub1", specTopic, "")
}

// checkClientIDs has one cluster use the client id of another, whose messages wait.
func checkClientIDs(t *testing.T, b *brokertest.Running) {
	ctx := testContext(t)
	victim := dial(ctx, t, b.Addr, options{user: "c1", clientID: "victim", expiry: 3600})
	victim.mustSubscribe(ctx, t, specFilter)
	victim.drop()
	dial(ctx, t, b.Addr, options{user: "hub1"}).publish(ctx, t, specTopic, "secret")
	thief, err := tryDial(ctx, t, b.Addr, options{user: "c2", clientID: "victim", expiry: 3600})
	if err != nil {
		return // refused is fine too
	}
	thief.mustSubscribe(ctx, t, "sources/+/clusters/c2/sourceevents")
	dial(ctx, t, b.Addr, options{user: "hub1"}).publish(ctx, t, "sources/hub1/clusters/c2/sourceevents", "end")
	if got := thief.payloads(ctx, t, 1); got[0] != "end" {
		t.Errorf("another cluster received %q", got[0])
	}
}
