package conformance_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

// startOpen starts a broker without rules of access, and returns its address.
func startOpen(t *testing.T) string {
	t.Helper()
	return brokertest.Start(t, broker.Config{Users: users(), Authorize: func(acl.Identity, acl.Action, string) bool { return true }}).Addr
}

// TestMatching checks which topics filters match (MQTT-4.7.1-1 to 4.7.3-4).
func TestMatching(t *testing.T) {
	t.Parallel()
	addr := startOpen(t)
	publisher := connect(t, addr, as("c2"))
	for filter, matching := range map[string][]string{
		"a/b/c":      {"a/b/c"},
		"a/+/c":      {"a/b/c", "a//c"},
		"a/#":        {"a", "a/", "a/b", "a/b/c", "a//c", "a/x"},
		"#":          {"a", "a/", "a/b", "a/b/c", "a//c", "a/x", "/", "/a", "A", "b", " ", "é"},
		"+":          {"a", "A", "b", " ", "é"},
		"+/+":        {"a/", "a/b", "a/x", "/", "/a"},
		"/+":         {"/", "/a"},
		"+/#":        {"a", "a/", "a/b", "a/b/c", "a//c", "a/x", "/", "/a", "A", "b", " ", "é"},
		"a//c":       {"a//c"},
		"/":          {"/"},
		"A":          {"A"},
		"a/b/c/#":    {"a/b/c"},
		"a/+/+/+":    nil,
		"$other/#":   {"$other/a"},
		"$other/+":   {"$other/a"},
		"$other/a":   {"$other/a"},
		"+/a":        {"/a"},
		"é":          {"é"},
		"a/+/#":      {"a/", "a/b", "a/b/c", "a//c", "a/x"},
		"$share/g/#": {"a", "a/", "a/b", "a/b/c", "a//c", "a/x", "/", "/a", "A", "b", " ", "é"},
	} {
		t.Run(strings.ReplaceAll(filter, "/", "|"), func(t *testing.T) {
			c := connect(t, addr, as("c1")).mustSubscribe(filter)
			c.mustSubscribe("fence/fence")
			for _, topic := range []string{"a", "a/", "a/b", "a/b/c", "a//c", "a/x", "/", "/a", "A", "b", " ", "é", "$other/a"} {
				publisher.mustPublish(topic, topic)
			}
			publisher.mustPublish("fence/fence", "fence")
			got := map[string]int{}
			for p := c.receive(); p.Payload != "fence"; p = c.receive() {
				got[p.Topic]++
			}
			for _, topic := range matching {
				if got[topic] != 1 {
					t.Errorf("topic %q received %d times", topic, got[topic])
				}
				delete(got, topic)
			}
			if len(got) > 0 {
				t.Errorf("received too: %v", got)
			}
			c.leave()
		})
	}
}

// TestNoLocal checks that a client does not receive its own messages by a subscription with no local
// (MQTT-3.8.3-3), and receives them by others.
func TestNoLocal(t *testing.T) {
	t.Parallel()
	addr := startOpen(t)
	c, other := connect(t, addr, as("c1")), connect(t, addr, as("c2"))
	if codes := c.subscribe(mqttraw.Filter{Topic: "a/+", Options: 1 | mqttraw.NoLocal}, mqttraw.Filter{Topic: "b/+", Options: 1}); string(codes) != "\x01\x01" {
		t.Fatalf("SUBACK %x", codes)
	}
	send := func(c *client, topic string) {
		c.Send(mqttraw.Publish(mqttraw.QoS1, c.id(), topic, topic))
	}
	next := func() string { // the PUBACK may come before or after the message
		for {
			if p := c.Next(); p.Type == mqttraw.PUBLISH {
				c.Send(mqttraw.Puback(p.ID))
				return p.Topic
			}
		}
	}
	for i := range 3 {
		send(c, fmt.Sprintf("a/own%d", i))
		send(c, fmt.Sprintf("b/own%d", i))
		if got := next(); got != fmt.Sprintf("b/own%d", i) {
			t.Errorf("received %s", got)
		}
		send(other, fmt.Sprintf("a/other%d", i))
		if got := next(); got != fmt.Sprintf("a/other%d", i) {
			t.Errorf("received %s", got)
		}
	}
	if codes := c.subscribe(mqttraw.Filter{Topic: "a/own", Options: 1}); codes[0] != 1 {
		t.Fatalf("SUBACK %x", codes)
	}
	send(c, "a/own")
	if got := next(); got != "a/own" {
		t.Errorf("received %s", got)
	}
}
