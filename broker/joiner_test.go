package broker_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/acltest"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const (
	joinRequests = "sources/hub1/joinrequests"
	joinAnswer   = "sources/hub1/joinanswers/a1"
)

// withJoiners adds two tokens' users.
func withJoiners() []broker.User {
	return append(users(), broker.User{Username: "any", Password: password, Role: acl.Joiner}, broker.User{Username: "other", Password: password, Role: acl.Joiner})
}

// TestJoiner: a joiner asks and reads its answer, and has nothing else, nor the connection or session of
// another one that has the same password and client id.
func TestJoiner(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: withJoiners()})
	hub, agent := dial(t, b.Addr, options{user: "hub1"}), dial(t, b.Addr, options{user: "c1"})
	hub.mustSubscribe(joinRequests)
	joiner := dial(t, b.Addr, options{user: "any", clientID: "same", expiry: 3600})
	if p := joiner.connack.Properties; p.SessionExpiryInterval == nil || *p.SessionExpiryInterval != 0 || p.MaximumPacketSize == nil || *p.MaximumPacketSize != 32<<10 {
		t.Errorf("CONNACK %+v", p)
	}
	joiner.mustSubscribe(joinAnswer)
	agent.mustSubscribe(joinAnswer)
	second := dial(t, b.Addr, options{user: "any", clientID: "same"})
	if second.publish(joinRequests, "from a joiner") != 0 || agent.publish(joinRequests, "from an agent") != 0 {
		t.Error("requests are refused")
	}
	if got := hub.payloads(2); !slices.Equal(got, []string{"from a joiner", "from an agent"}) {
		t.Errorf("the hub received %v", got)
	}
	if hub.publish(joinAnswer, "answer") != 0 {
		t.Error("the answer is refused")
	}
	joiner.payloads(1)
	agent.payloads(1)
	for _, a := range acltest.Attempts() {
		if a.Who != acltest.Joiner {
			continue
		}
		var code byte
		if a.Action == acl.Publish {
			code = second.publish(a.Topic, "attempt")
		} else {
			code = second.subscribe(a.Topic)
		}
		if (code < 0x80) != a.Allowed {
			t.Errorf("%v: 0x%x", a, code)
		}
	}
	if c, err := tryDial(t, b.Addr, options{user: "any", will: &paho.WillMessage{Topic: joinRequests, QoS: 1}}); err == nil || c.connack == nil || c.connack.ReasonCode != 0x87 {
		t.Errorf("with a will: %v", err)
	}
	raw := dialRaw(t, b.Addr, "any")
	raw.Connect("large", 0)
	_ = raw.Publish(1, joinRequests, make([]byte, 32<<10))
	if code := raw.Next().(*packets.Disconnect).ReasonCode; code != 0x95 {
		t.Errorf("a packet over 32 KiB: 0x%x", code)
	}
}

// TestJoinersFillNoQueue: all joiners together are one publisher. While the hub is away they are refused
// before its session ends, and agents are not.
func TestJoinersFillNoQueue(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: withJoiners(), MaxQueuedMessages: 80})
	hub := dial(t, b.Addr, options{user: "hub1", expiry: 3600})
	hub.mustSubscribe(joinRequests)
	hub.mustSubscribe("clusters/+/agentbroadcast")
	hub.drop()
	one, other := dial(t, b.Addr, options{user: "any"}), dial(t, b.Addr, options{user: "other"})
	for i := range 40 {
		if code := one.publish(joinRequests, "request"); code != 0 {
			t.Fatalf("request %d: 0x%x", i, code)
		}
	}
	for name, c := range map[string]*client{"the same": one, "another": other} {
		if code := c.publish(joinRequests, "one too many"); code != 0x97 {
			t.Errorf("%s joiner: 0x%x", name, code)
		}
	}
	if code := dial(t, b.Addr, options{user: "c1"}).publish("clusters/c1/agentbroadcast", "presence"); code != 0 {
		t.Errorf("an agent: 0x%x", code)
	}
	if hub = dial(t, b.Addr, options{user: "hub1", expiry: 3600}); !hub.connack.SessionPresent {
		t.Error("the session of the hub has ended")
	}
	hub.payloads(41)
}

// TestJoinersStay: a joiner that waits, for approval say, stays connected when passwords are looked at again.
func TestJoinersStay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "passwd")
	set := func(password string) {
		hash, err := broker.HashPassword(password)
		kit.NoError(t, err)
		kit.NoError(t, os.WriteFile(file, []byte(hash), 0o600))
	}
	set("one")
	var log kit.Log
	b := brokertest.Start(t, broker.Config{Users: append(withJoiners(), broker.User{Username: "changes", PasswordFile: file, Role: acl.Agent}), Logger: log.Logger()})
	joiner := dial(t, b.Addr, options{user: "any"})
	dial(t, b.Addr, options{user: "changes", password: "one"})
	set("another one")
	log.Await(t, "sessions ended, their certificates or passwords are no longer accepted")
	if !strings.Contains(log.String(), "sessions=1") {
		t.Errorf("want one session to end: %s", &log)
	}
	if code := joiner.publish(joinRequests, "request"); code >= 0x80 {
		t.Errorf("the joiner: 0x%x", code)
	}
}

// TestJoinersShareLimits: all joiners have the connections and the rate of one identity; an agent has its own.
func TestJoinersShareLimits(t *testing.T) {
	b := brokertest.Start(t, broker.Config{Users: withJoiners(), Limits: limits.Config{
		ConnectionsPerIdentity: 2, Joiner: limits.Rate{MessagesPerSecond: 200}, // half a second for a login
	}})
	start := time.Now()
	dial(t, b.Addr, options{user: "any"})
	dial(t, b.Addr, options{user: "other"})
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("two logins took %v", took)
	}
	if c, err := tryDial(t, b.Addr, options{user: "other", clientID: "third"}); err == nil || c.connack == nil || c.connack.ReasonCode != 0x97 {
		t.Errorf("the third connection: %v", err)
	}
	dial(t, b.Addr, options{user: "c1"})
}
