package conformance_test

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/mqttflood"
	"github.com/workwire/workwire/test/kit/mqttraw"
)

// TestFloods lets one agent send as much as it can, in each of the ways of mqttflood, with the
// default limits. Another agent and the hub, to which it sends, are served, no session of theirs
// ends, and what the attacker sends comes at its rate. How much others are delayed depends on the
// machine: see docs/performance.md.
func TestFloods(t *testing.T) {
	t.Parallel()
	for kind := range mqttflood.Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := startChild(t, defaults)
			hub, agent := connect(t, c.Addr, durable(as("hub1"))), connect(t, c.Addr, durable(as("c2")))
			probe, err := mqttflood.NewProbe(hub.Conn.Conn, agent.Conn.Conn, "hub1", "c2")
			kit.NoError(t, err)
			without, err := probe.Measure(t.Context(), 200*time.Millisecond)
			kit.NoError(t, err)

			start := time.Now()
			attacker, err := mqttflood.Start(mqttflood.Attack{Kind: kind, Addr: c.Addr, From: "127.0.0.3", Topic: up("c1"), User: "c1", Password: password})
			kit.NoError(t, err)
			if mqttflood.Sends(kind) {
				kit.True(t, "the flood to begin", func() bool { return probe.Foreign() > 0 })
			}
			with, err := probe.Measure(t.Context(), time.Second)
			if err != nil {
				t.Errorf("others are not served: %v", err)
			}
			received, most := probe.Foreign(), 1+int64((time.Since(start)+time.Second/4).Seconds()*limits.DefaultAgentMessagesPerSecond)
			if received > most {
				t.Errorf("%d messages of the attacker in %v, want at most %d", received, time.Since(start), most)
			}
			sent, err := attacker.Stop()
			kit.NoError(t, err)
			t.Logf("99 of 100 within %v, without the flood %v; %d sent, %d received", mqttflood.Quantile(with, 0.99), mqttflood.Quantile(without, 0.99), sent, received)
			kit.NoError(t, c.Died())
			c.served()
		})
	}
}

// TestNoLoginFloods lets somebody without a login flood the broker from the address of others, who log in
// meanwhile: half-open connections do not keep them out, and wrong passwords do not use up the CPUs.
func TestNoLoginFloods(t *testing.T) {
	t.Parallel()
	// The attacker, of the lowest priority, is slow on a busy machine: so many connections at a time are the test's own.
	own := map[string]int{"half-open connections": 20}
	for kind, noticed := range map[string]string{"half-open connections": "another one takes its place", "wrong passwords": "client refused"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			c := startChild(t, hashed)
			attacker, err := mqttflood.Start(mqttflood.Attack{Kind: kind, Addr: c.Addr, From: "127.0.0.1"})
			kit.NoError(t, err)
			kit.True(t, "the flood to be noticed", func() bool {
				for range own[kind] {
					mqttraw.Dial(t, c.Addr)
				}
				log, err := os.ReadFile(c.Log)
				return err == nil && bytes.Contains(log, []byte(noticed))
			})
			for _, user := range []string{"c1", "c2", "hub1"} { // whose passwords were not checked before
				attempts := 0
				for {
					conn := mqttraw.Dial(t, c.Addr)
					conn.Send(as(user).Bytes())
					got, err := mqttraw.Read(conn.Reader)
					_ = conn.Close()
					if err == nil && got.Code() == 0 {
						break
					}
					if attempts++; attempts == 20 {
						t.Fatalf("%s cannot log in: %v, %v", user, got, err)
					}
				}
				t.Logf("%s logs in at attempt %d", user, attempts+1)
			}
			sent, err := attacker.Stop()
			if err != nil || sent == 0 && own[kind] == 0 {
				t.Errorf("%v, the attacker has made %d connections", err, sent)
			}
			kit.NoError(t, c.Died())
		})
	}
}
