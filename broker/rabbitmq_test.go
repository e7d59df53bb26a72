package broker_test

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/acltest"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/mosquittokit"
	"github.com/workwire/workwire/test/kit/rabbitmqkit"
)

// TestRabbitMQ checks what docs/brokers.md says about RabbitMQ's MQTT 5.
func TestRabbitMQ(t *testing.T) {
	t.Parallel()
	f := &fleet{rabbitmq: true, addr: brokertest.StartRabbitMQ(t, rabbitmqkit.Config{Users: fleetUsers()}).Addr}
	options := f.optionsFor(t, acltest.A, "session")
	options.expiry = 3600
	agent, hub := dial(t, f.addr, options), dial(t, f.addr, f.optionsFor(t, acltest.Hub, "hub"))
	p := agent.connack.Properties
	if p.SharedSubAvailable || p.ReceiveMaximum != nil || p.MaximumPacketSize == nil || *p.MaximumPacketSize != 1<<20 {
		t.Errorf("CONNACK is %+v", p)
	}
	if code := hub.publish(specTopic, "nobody listens"); code != packets.PubackNoMatchingSubscribers {
		t.Errorf("nobody listens: 0x%x", code)
	}
	agent.mustSubscribe(specFilter)
	taken := dial(t, f.addr, options)
	agent.await("the DISCONNECT", func() bool { return agent.disconnected != nil })
	agent.mu.Lock()
	if agent.disconnected.ReasonCode != packets.DisconnectSessionTakenOver || !taken.connack.SessionPresent {
		t.Errorf("taken over: %+v, the session is there: %v", agent.disconnected, taken.connack.SessionPresent)
	}
	agent.mu.Unlock()
	taken.drop()
	expiry := uint32(1)
	hub.publishPacket(&paho.Publish{Topic: specTopic, QoS: 1, Payload: []byte("expires"), Properties: &paho.PublishProperties{MessageExpiry: &expiry}})
	published := time.Now() // it has the message by now, however long that took
	for _, payload := range []string{"1", "2", "3"} {
		if code := hub.publish(specTopic, payload); code != 0 {
			t.Errorf("to a session that is away: 0x%x", code)
		}
	}
	kit.True(t, "the expiry of a message", func() bool { return time.Since(published) > 2*time.Second })
	options.receiveMaximum, options.manual = 2, true
	agent = dial(t, f.addr, options)
	if got := agent.payloads(2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("received %v", got)
	}
	hub.publish("sources/hub1/clusters/c2/sourceevents", "a message that the broker handles after that")
	agent.mu.Lock()
	received := slices.Clone(agent.received)
	agent.mu.Unlock()
	if len(received) != 2 {
		t.Errorf("%d messages with a receive maximum of 2", len(received))
	}
	for _, p := range received {
		kit.NoError(t, agent.Ack(p))
	}
	if got := agent.payloads(3); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("received %v", got)
	}
}

// A session and what waits for it survive a crash of the only node, unless it is less than a second old
// (docs/brokers.md).
func TestRabbitMQKilled(t *testing.T) {
	t.Parallel()
	c := brokertest.StartRabbitMQ(t, rabbitmqkit.Config{Users: fleetUsers()})
	f := &fleet{rabbitmq: true, addr: c.Addr}
	options := f.optionsFor(t, acltest.A, "session")
	options.expiry = 3600
	agent := dial(t, f.addr, options)
	agent.mustSubscribe(specFilter)
	subscribed := time.Now()
	agent.drop()
	if code := dial(t, f.addr, f.optionsFor(t, acltest.Hub, "hub")).publish(specTopic, "kept"); code != 0 {
		t.Fatalf("to a session that is away: 0x%x", code)
	}
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	kit.True(t, "RabbitMQ has written the list of its queues", func() bool { return time.Since(subscribed) > 3*time.Second })
	kit.NoError(t, c.Kill())
	kit.NoError(t, c.Restart(ctx))
	if agent = dial(t, f.addr, options); !agent.connack.SessionPresent {
		t.Error("the session is gone")
	}
	if got := agent.payloads(1); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("received %v", got)
	}
}

// TestWebSocket: by WebSocket, clients of RabbitMQ and Mosquitto are known by their certificates too, have the same rights, and keep their
// sessions. Work-broker is in TestAccess; Mosquitto 2.0.21 takes a tenth of a second for each step of a connection.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *fleet{
		"rabbitmq": func(t *testing.T) *fleet {
			ca, c := certifiedRabbitMQ(t)
			return &fleet{rabbitmq: true, webSocket: true, ca: ca, addr: c.WebSocketAddr}
		},
		"mosquitto": func(t *testing.T) *fleet {
			if os.Getenv("WORKWIRE_MOSQUITTO_WEBSOCKETS") == "" {
				t.Skip("make e2e runs it, in make check too: it needs a Mosquitto with libwebsockets, and WORKWIRE_MOSQUITTO_WEBSOCKETS")
			}
			ca := newAuthority(t)
			files := ca.write(t, t.TempDir(), 1).TLS
			b := brokertest.StartMosquittoWith(t, mosquittokit.Config{
				Users: fleetUsers(), TLS: &mosquittokit.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.ClientCAFile}, WebSocket: true,
			})
			return &fleet{mosquitto: true, webSocket: true, ca: ca, addr: b.WebSocketAddr}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start(t).checkWebSocket(t)
		})
	}
}

func (f *fleet) checkWebSocket(t *testing.T) {
	f.checkLogin(t)
	options := f.optionsFor(t, acltest.A, "session")
	options.expiry = 3600
	agent, hub := dial(t, f.addr, options), dial(t, f.addr, f.optionsFor(t, acltest.Hub, "hub"))
	agent.mustSubscribe(specFilter)
	agent.drop()
	if code := hub.publish(specTopic, "1"); code != 0 {
		t.Errorf("to a session that is away: 0x%x", code)
	}
	if agent = dial(t, f.addr, options); !agent.connack.SessionPresent {
		t.Error("the session is gone")
	}
	other := dial(t, f.addr, f.optionsFor(t, acltest.B, "other"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	refused := &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: specFilter, QoS: 1}}}
	if _, err := other.Subscribe(ctx, refused); err == nil && !f.mosquitto { // which filters what it delivers
		t.Error("an agent may subscribe to the specs of another one")
	}
	hub.publish(specTopic, "2")
	if got := agent.payloads(2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("received %v", got)
	}
	if f.mosquitto {
		other.mustSubscribe("sources/+/clusters/c2/sourceevents") // answered after what came before
		other.mu.Lock()
		defer other.mu.Unlock()
		if len(other.received) > 0 {
			t.Error("an agent received a spec of another one")
		}
	}
}
