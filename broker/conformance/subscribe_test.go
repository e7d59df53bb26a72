package conformance_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit/mqttraw"
)

// TestSubscribe checks that each filter of a SUBSCRIBE is answered, in order (MQTT-3.8.4-5 to
// 3.8.4-7), and those of UNSUBSCRIBE (MQTT-3.10.4-1 to 3.11.3-2).
func TestSubscribe(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, as("c1"))
	codes := agent.subscribe(
		mqttraw.Filter{Topic: downFilter("c1"), Options: 1}, mqttraw.Filter{Topic: "#", Options: 1}, mqttraw.Filter{Topic: "sources/hub2/clusters/c1/sourceevents"},
		mqttraw.Filter{Topic: downFilter("c2")}, mqttraw.Filter{Topic: "$share/g/sources/hub1/clusters/c1/sourceevents", Options: 1},
	)
	if !bytes.Equal(codes, []byte{1, 0x87, 0, 0x87, 1}) {
		t.Errorf("SUBACK %x", codes)
	}
	id := agent.id()
	agent.Send(mqttraw.Unsubscribe(id, downFilter("c1"), "unknown/filter", "sources/hub2/clusters/c1/sourceevents", "$share/g/sources/hub1/clusters/c1/sourceevents", downFilter("c1")))
	unsuback := agent.Expect(mqttraw.UNSUBACK)
	if unsuback.ID != id || !bytes.Equal(unsuback.Codes, []byte{0, 0x11, 0, 0, 0x11}) {
		t.Errorf("UNSUBACK %v", unsuback)
	}
	hub := connect(t, addr, as("hub1"))
	hub.mustPublish(down("c1"), "unseen")
	agent.mustSubscribe(downFilter("c1"))
	hub.mustPublish(down("c1"), "seen")
	agent.mustReceive("seen")

	// A second subscription replaces the first, MQTT-3.8.4-3.
	if codes := agent.subscribe(mqttraw.Filter{Topic: downFilter("c1"), Options: 0}); codes[0] != 0 {
		t.Errorf("SUBACK %x", codes)
	}
	hub.mustPublish(down("c1"), "once")
	hub.mustPublish(down("c1"), "then")
	for _, want := range []string{"once", "then"} {
		if p := agent.receive(); p.Payload != want || p.QoS() != 0 {
			t.Errorf("received %v, want %s with QoS 0", p, want)
		}
	}
}

// TestUnsubscribeKeepsQueue checks that messages that are on their way when a client unsubscribes may
// arrive, and later ones do not (MQTT-3.10.4-2, 3.10.4-3).
func TestUnsubscribeKeepsQueue(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, as("c1")).mustSubscribe(downFilter("c1"), "sources/+/sourcebroadcast")
	hub := connect(t, addr, as("hub1"))
	hub.mustPublish(down("c1"), "before")
	unacknowledged := agent.Expect(mqttraw.PUBLISH)
	agent.Send(mqttraw.Unsubscribe(agent.id(), downFilter("c1")))
	agent.Expect(mqttraw.UNSUBACK)
	agent.Send(mqttraw.Puback(unacknowledged.ID))
	hub.mustPublish(down("c1"), "after")
	hub.mustPublish("sources/hub1/sourcebroadcast", "fence")
	agent.mustReceive("fence")
}

// TestFiltersRefused checks filters that are not valid or not the client's: none may be granted.
func TestFiltersRefused(t *testing.T) {
	t.Parallel()
	addr := start(t)
	invalid := []string{
		"sources/+/clusters/c1/sourceevents#", "sources/#/clusters/c1/sourceevents", "sources+/a/clusters/c1/sourceevents", "sources/+x/clusters/c1/sourceevents",
		"#", "+", "+/+", "/", "//", "sources/#", "+/+/+/+/+", "$SYS/#", "$SYS/broker/uptime", "$share/g/#", "$share/g/$SYS/#", "$share/g", "$share/g/", "$share//a", "$share/",
		"$share/+/sources/+/clusters/c1/sourceevents", "$share/#/a", "$share/a+b/sources/+/clusters/c1/sourceevents", "$share",
		"sources/+/clusters/c1/Sourceevents", "sources/+/clusters/C1/sourceevents", strings.Repeat("/", 65535), strings.Repeat("a", 65535),
		"sources/" + strings.Repeat("x", 5000) + "/clusters/c1/sourceevents", strings.Repeat("$share/g/", 100) + "a",
	}
	for _, user := range []string{"c1", "hub1", "watch"} {
		for _, filter := range invalid {
			c := connect(t, addr, as(user))
			c.Send(mqttraw.Subscribe(1, nil, mqttraw.Filter{Topic: filter, Options: 1}))
			p := c.Next()
			granted := p.Type == mqttraw.SUBACK && p.Code() < 0x80
			if granted || p.Type != mqttraw.SUBACK && p.Type != mqttraw.DISCONNECT {
				t.Errorf("%s: filter %.80q: %v", user, filter, p)
			}
			c.drop()
		}
	}
}

// TestWildcards checks what filters match (MQTT-4.7.1-1 to 4.7.2-1), as far as the rules of access
// admit filters.
func TestWildcards(t *testing.T) {
	t.Parallel()
	addr := start(t)
	hub := connect(t, addr, as("hub1"))
	for filter, matches := range map[string]bool{
		"sources/+/clusters/c1/sourceevents":    true,
		"sources/hub1/clusters/c1/sourceevents": true,
		"sources/hub2/clusters/c1/sourceevents": false,
		"sources/hub/clusters/c1/sourceevents":  false,
		"others/+/clusters/c1/sourceevents":     false,
		"sources/+/sourcebroadcast":             false,
	} {
		agent := connect(t, addr, as("c1")).mustSubscribe(filter, "fence/+/sourcebroadcast")
		hub.mustPublish(down("c1"), filter)
		hub.mustPublish("fence/hub1/sourcebroadcast", "fence")
		if matches {
			agent.mustReceive(filter)
		}
		agent.mustReceive("fence")
		agent.leave()
	}
}

// TestOverlappingFilters checks that a message that matches several subscriptions is delivered once, with the highest QoS
// (MQTT-3.3.4-2).
func TestOverlappingFilters(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, durable(as("c1"))).mustSubscribe("sources/+/sourcebroadcast")
	subscribe := func(filter string, qos byte) {
		if codes := agent.subscribe(mqttraw.Filter{Topic: filter, Options: qos}); codes[0] != qos {
			t.Fatalf("SUBACK %x", codes)
		}
	}
	subscribe(downFilter("c1"), 0)
	subscribe(down("c1"), 1)
	hub := connect(t, addr, as("hub1"))
	check := func(qos byte) {
		t.Helper()
		hub.mustPublish(down("c1"), "message")
		hub.mustPublish("sources/hub1/sourcebroadcast", "fence")
		if p := agent.receive(); p.Payload != "message" || p.QoS() != qos {
			t.Errorf("received %v, want the message with QoS %d", p, qos)
		}
		agent.mustReceive("fence")
	}
	check(1)
	subscribe(down("c1"), 0) // replaces the QoS
	check(0)
	agent.drop()
	agent = connect(t, addr, durable(as("c1"))) // they belong to the session
	check(0)
	subscribe(down("c1"), 1)
	check(1)
}

// TestNoLocal checks that a client does not receive its own messages by a subscription with no local
// (MQTT-3.8.3-3), and receives them by others.
func TestNoLocal(t *testing.T) {
	t.Parallel()
	addr := start(t)
	second := as("hub1")
	second.ClientID = "second"
	c, other := connect(t, addr, as("hub1")), connect(t, addr, second)
	const silent, loud = "a/hub1/clusters/-/sourceevents", "b/hub1/clusters/-/sourceevents"
	if codes := c.subscribe(mqttraw.Filter{Topic: silent, Options: 1 | mqttraw.NoLocal}, mqttraw.Filter{Topic: loud, Options: 1}); string(codes) != "\x01\x01" {
		t.Fatalf("SUBACK %x", codes)
	}
	send := func(c *client, topic, payload string) {
		c.Send(mqttraw.Publish(mqttraw.QoS1, c.id(), topic, payload))
	}
	next := func() string { // the PUBACK may come before or after the message
		for {
			if p := c.Next(); p.Type == mqttraw.PUBLISH {
				c.Send(mqttraw.Puback(p.ID))
				return p.Payload
			}
		}
	}
	for i := range 3 {
		send(c, silent, "unseen")
		send(c, loud, fmt.Sprint("own", i))
		if got := next(); got != fmt.Sprint("own", i) {
			t.Errorf("received %s", got)
		}
		send(other, silent, fmt.Sprint("other", i))
		if got := next(); got != fmt.Sprint("other", i) {
			t.Errorf("received %s", got)
		}
	}
	if codes := c.subscribe(mqttraw.Filter{Topic: "$share/g/" + silent, Options: 1}); codes[0] != 1 {
		t.Fatalf("SUBACK %x", codes)
	}
	send(c, silent, "by another")
	if got := next(); got != "by another" {
		t.Errorf("received %s", got)
	}
}

// TestSubscriptionOptions checks the options that have no effect here, and those that are refused.
func TestSubscriptionOptions(t *testing.T) {
	t.Parallel()
	addr := start(t)
	agent := connect(t, addr, as("c1"))
	hub := connect(t, addr, as("hub1"))
	for handling := range byte(3) {
		for _, options := range []byte{0, mqttraw.NoLocal, mqttraw.RetainAsPublished, mqttraw.NoLocal | mqttraw.RetainAsPublished} {
			if codes := agent.subscribe(mqttraw.Filter{Topic: downFilter("c1"), Options: 1 | options | handling<<4}); codes[0] != 1 {
				t.Errorf("options %x: SUBACK %x", options, codes)
			}
			hub.mustPublish(down("c1"), "x")
			if p := agent.receive(); p.Flags&mqttraw.Retain != 0 || p.Payload != "x" { // MQTT-3.3.1-12
				t.Errorf("options %x: received %v", options, p)
			}
		}
	}
}

// TestSharedSubscription checks that each message reaches one member of a group, and
// that groups with one name of several identities are several groups.
func TestSharedSubscription(t *testing.T) {
	t.Parallel()
	addr := start(t)
	member := func(user, id string, filters ...string) *client {
		connecting := as(user)
		connecting.ClientID = id
		return connect(t, addr, connecting).mustSubscribe(filters...)
	}
	const group = "$share/group/" + upFilter
	members := []*client{
		member("hub1", "one", group, "fence/+/agentbroadcast"), member("hub1", "two", group, "fence/+/agentbroadcast"),
	}
	plain := member("hub1", "plain", upFilter)
	agent := connect(t, addr, as("c1"))
	const count = 20
	for i := range count {
		agent.mustPublish(up("c1"), fmt.Sprint(i))
		plain.mustReceive(fmt.Sprint(i))
	}
	agent.mustPublish("fence/c1/agentbroadcast", "fence")
	got := map[string]int{}
	for _, m := range members {
		for p := m.receive(); p.Payload != "fence"; p = m.receive() {
			got[p.Payload]++
		}
	}
	for i := range count {
		if got[fmt.Sprint(i)] != 1 {
			t.Errorf("message %d reached the group %d times", i, got[fmt.Sprint(i)])
		}
	}

	const shared = "$share/group/sources/+/sourcebroadcast"
	agents := []*client{member("c2", "c2", shared), member("c3", "c3", shared)}
	hub := connect(t, addr, as("hub1"))
	for i := range 10 {
		hub.mustPublish("sources/hub1/sourcebroadcast", fmt.Sprint(i))
		for _, a := range agents {
			a.mustReceive(fmt.Sprint(i))
		}
	}
	agents[0].Send(mqttraw.Unsubscribe(agents[0].id(), shared))
	if p := agents[0].Expect(mqttraw.UNSUBACK); p.Code() != 0 {
		t.Errorf("leave the group: %v", p)
	}
}
