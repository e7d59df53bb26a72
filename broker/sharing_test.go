package broker_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"github.com/workwire/workwire/test/kit"
)

const (
	statusTopic  = "sources/hub1/clusters/c1/agentevents"
	sharedFilter = "$share/hub/sources/hub1/clusters/+/agentevents"
)

// TestSharedByReplicas checks what docs/brokers.md says about two sessions in one shared
// subscription: each message goes to one of them. While one is disconnected, work-broker sends
// everything to the other; Mosquitto queues a share for the disconnected one. Mosquitto adds any
// client to the group, and loses the messages assigned to a client that may not read them.
func TestSharedByReplicas(t *testing.T) {
	const n = 30
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			agent := dial(t, b.Addr, options{user: "c1"})
			var payloads []string
			for i := range n {
				payloads = append(payloads, fmt.Sprint(i))
			}
			publish := func() {
				t.Helper()
				agent.publishMany(statusTopic, payloads)
				agent.publish("clusters/c1/agentbroadcast", "end")
			}
			join := func(id string) *client {
				t.Helper()
				c := dial(t, b.Addr, options{user: "hub1", clientID: id, expiry: 3600})
				c.mustSubscribe(sharedFilter)
				c.mustSubscribe("clusters/+/agentbroadcast")
				return c
			}
			one, two := join("one"), join("two")
			publish()
			a, z := one.untilEnd(1), two.untilEnd(1)
			if a+z != n || a == 0 || z == 0 {
				t.Errorf("the two received %d and %d of %d", a, z, n)
			}

			two.mustSubscribe("clusters/+/agentbroadcast") // the answer comes after its acknowledgements
			two.drop()
			sent, received, share := 0, 0, 0
			for want := map[string]int{"work-broker": n, "mosquitto": n / 2}[name]; share != want; {
				if sent > 100*n {
					t.Fatalf("while the other is away, one receives %d of %d, want %d", share, n, want)
				}
				publish()
				share = one.untilEnd(1)
				sent, received = sent+n, received+share
			}
			two = join("two")
			if z := two.untilEnd(sent / n); received+z != sent {
				t.Errorf("one received %d of %d, the other, when it came back, %d", received, sent, z)
			}

			outsider := dial(t, b.Addr, options{user: "c2"})
			outsider.subscribe(sharedFilter)
			publish()
			a, z = one.untilEnd(1), two.untilEnd(1)
			if want := map[string]int{"work-broker": n, "mosquitto": n * 2 / 3}[name]; a+z != want {
				t.Errorf("with an outsider in the group, the two received %d of %d, want %d", a+z, n, want)
			}
		})
	}
}

// untilEnd waits for a number of messages "end", and returns the number of other messages since the
// last call.
func (c *client) untilEnd(ends int) int {
	c.t.Helper()
	count := func() (others, seen int) {
		for _, p := range c.received {
			if string(p.Payload) == "end" {
				seen++
			} else {
				others++
			}
		}
		return others, seen
	}
	c.await("the end", func() bool { _, seen := count(); return seen >= ends })
	c.mu.Lock()
	defer c.mu.Unlock()
	others, _ := count()
	c.received = nil
	return others
}

// TestTakeover connects a second client with the client id of a first: it takes the session over,
// and the first connection ends. work-broker and Mosquitto 2.0.21 send the reason; Mosquitto
// 2.0.11 does not.
func TestTakeover(t *testing.T) {
	for name, start := range brokers() {
		t.Run(name, func(t *testing.T) {
			b := start(t)
			first := dialRaw(t, b.Addr, "hub1")
			first.Connect("hub", 3600)
			first.Subscribe("sources/hub1/clusters/+/agentevents")
			second := dialRaw(t, b.Addr, "hub1")
			if !second.Connect("hub", 3600).SessionPresent {
				t.Error("the second client has not got the session")
			}
			p, err := packets.ReadPacket(first.Reader)
			if name == "mosquitto" {
				if err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the connection of the first client does not end: %v", err)
					}
					return
				}
			}
			kit.NoError(t, err)
			if d, ok := p.Content.(*packets.Disconnect); !ok || d.ReasonCode != 0x8e {
				t.Errorf("the first client got %v", p)
			}
			first.ExpectEnd()
		})
	}
}
