package clusters_test

import (
	"context"
	"iter"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/transport/transporttest"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
)

const (
	// keepAlive of all connections. (One second is too little for work-broker, which rounds the
	// half of it down.)
	keepAlive = 2 * time.Second
	// slack is for the machine, which may be busy.
	slack = 20 * time.Second
	// name of the cluster whose agent is a real one.
	name = "real"
)

var topics = wire.Topics{
	SourceEvents: "sources/hub1/clusters/+/sourceevents",
	AgentEvents:  "sources/hub1/clusters/+/agentevents",
}

// nothing is a source without works.
type nothing struct{}

func (nothing) Get(types.UID) (delivery.StoredWork, bool) { return delivery.StoredWork{}, false }
func (nothing) ListCluster(wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	return func(func(*workv1.ManifestWork) bool) {}
}
func (nothing) Content(work *workv1.ManifestWork) *workv1.ManifestWork          { return work }
func (nothing) Unknown(wire.SpecVersion) delivery.UnknownAction                 { return delivery.AnswerUnknown }
func (nothing) WriteDelivery(context.Context, types.UID) error                  { return nil }
func (nothing) Clusters() iter.Seq[wire.ClusterName]                            { return func(func(wire.ClusterName) bool) {} }
func (nothing) UpdateStatus(context.Context, *wire.Status) error                { return nil }
func (nothing) SetCondition(context.Context, types.UID, metav1.Condition) error { return nil }
func (nothing) AgentAhead(types.UID, wire.Generation) bool                      { return false }

// net is how the hub and the agent reach a broker.
type net struct {
	hub, agent func(testing.TB) transport.Transport
	// cut has the agent's connection break, as the network does it, and restore ends that.
	cut, restore func()
	// noticed is how long the broker may take to notice a cut.
	noticed time.Duration
	// restart has the broker start again.
	restart func(testing.TB)
}

func overMemory(testing.TB) net {
	b := memory.NewBroker()
	return net{
		hub:     func(testing.TB) transport.Transport { return b.Client("hub1-hub") },
		agent:   func(testing.TB) transport.Transport { return b.Client(name + "-agent") },
		cut:     func() { b.Cut(name + "-agent") },
		restore: func() { b.Restore(name + "-agent") },
		restart: func(testing.TB) { b.Forget("hub1-hub"); b.Forget(name + "-agent") },
	}
}

// overTCP has the agent speak through what can be made a black hole: its broker learns of nothing.
func overTCP(noticed time.Duration, start func(testing.TB, []broker.User) *brokertest.Running) func(testing.TB) net {
	return func(t testing.TB) net {
		b := start(t, []broker.User{
			{Username: "hub1", Password: "secret", Role: acl.Source}, {Username: name, Password: "secret", Role: acl.Agent},
		})
		proxy := transporttest.StartProxy(t, b.Addr)
		client := func(address, user, id string) func(testing.TB) transport.Transport {
			return func(t testing.TB) transport.Transport {
				tr, err := mqtt.New(mqtt.Config{
					Broker: config.Config{
						BrokerHost: address, Username: user, Password: "secret", Topics: topics, KeepAlive: keepAlive, DialTimeout: 5 * time.Second,
					},
					ClientID: id, Logger: kit.Logger(t),
				})
				kit.NoError(t, err)
				return tr
			}
		}
		return net{
			hub: client(b.Addr, "hub1", "hub1-hub"), agent: client(proxy.Addr, name, name+"-agent"),
			cut:     proxy.Stall,
			restore: func() { proxy.Cut(); proxy.Resume(); proxy.Restore() },
			restart: b.Restart, noticed: noticed,
		}
	}
}

// hub runs a fleet and a link to it, until stopped.
func (w *world) hub(tr transport.Transport, change ...func(*clusters.Config)) *fleet {
	w.Helper()
	f := w.start(append([]func(*clusters.Config){func(c *clusters.Config) { c.KeepAlive = keepAlive }}, change...)...)
	l, err := delivery.New(delivery.Config{
		Source: "hub1", Topics: topics, Transport: tr, Works: nothing{},
		Observe: func(event delivery.Event) {
			f.Observe(event)
			if heard, ok := event.(delivery.ClusterHeard); ok && heard.Presence != nil && heard.Presence.Present {
				f.note(func() { f.announced[heard.Cluster]++ })
			}
		},
		Logger: kit.Logger(w),
	})
	kit.NoError(w, err)
	f.engine.Store(l)
	stopLink, stopFleet := kit.Run(w, "delivery", l.Run), f.stop
	kit.True(w, "the hub is connected", l.Connected)
	f.stop = func() { stopLink(); stopFleet() }
	return f
}

// agent runs the agent of the cluster. It has no works, and so nothing to say but that it is there.
func (w *world) agent(tr transport.Transport) (stop func()) {
	w.Helper()
	a, err := agent.New(agent.Config{
		Cluster: name, ClientID: name + "-agent", BrokerHost: "broker", Topics: topics, Transport: tr, Kube: plane.REST(),
		Logger: kit.Logger(w),
	})
	kit.NoError(w, err)
	return kit.Run(w, "agent", a.Run)
}

// A real agent starts, is cut off, comes back, stops, starts again, and the hub and the broker
// start again: the ManagedCluster tells, in time.
func TestAgent(t *testing.T) {
	for kind, over := range map[string]func(testing.TB) net{
		"memory": overMemory,
		"work-broker": overTCP(keepAlive*3/2, func(t testing.TB, users []broker.User) *brokertest.Running {
			return brokertest.Start(t, broker.Config{Users: users})
		}),
		// Mosquitto looks every five seconds.
		"mosquitto": overTCP(keepAlive*3/2+5*time.Second, brokertest.StartMosquitto),
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			n := over(t)
			within := func(what string, limit time.Duration, want func(*clusterv1.ManagedCluster) bool) {
				t.Helper()
				began := time.Now()
				w.await(name, what, want)
				took := time.Since(began)
				t.Logf("%s after %s", what, took)
				if took > limit+slack {
					t.Errorf("%s after %s, want %s", what, took, limit)
				}
			}
			hub := w.hub(n.hub(t))
			stop := w.agent(n.agent(t))
			within("registered", slack, available)

			n.cut()
			within("cut off", n.noticed, disconnected)
			n.restore()
			within("back", kit.Patience, available)

			stop()
			within("stopped", 0, disconnected)
			stop = w.agent(n.agent(t))
			within("started again", slack, available)

			// The agent shows when it is asked. One that is not there does not.
			hub.says("ghost", "a", true)
			w.await("ghost", "available", available)
			hub.stop()
			hub = w.hub(n.hub(t))
			w.await("ghost", "missing", missing)
			if !available(w.get(name)) || len(hub.requested(name)) > 0 {
				t.Errorf("a new hub made %v of the cluster: %v", hub.requested(name), w.get(name).Status.Conditions)
			}

			hub.mu.Lock()
			before := hub.announced[name]
			hub.mu.Unlock()
			n.restart(t)
			hub.await("the agent is back after the broker's restart", func() bool { return hub.announced[name] > before })
			w.await(name, "available", available)
			stop()
			within("stopped again", 0, disconnected)
		})
	}
}

// An agent that announces nothing, as OCM's, is present while its messages come.
func TestAgentThatAnnouncesNothing(t *testing.T) {
	w := newWorld(t)
	b := memory.NewBroker()
	w.hub(b.Client("hub1-hub"), func(c *clusters.Config) { c.Silence = 2 * time.Second })
	ocm := b.Client("ocm-agent")
	connected := make(chan struct{}, 10)
	stop := kit.Run(w, "OCM's agent", func(ctx context.Context) error {
		return ocm.Run(ctx, transport.Handler{
			Subscriptions: []string{"sources/hub1/clusters/ocm/sourceevents"},
			Connected:     func(context.Context, transport.Connection) { connected <- struct{}{} },
			Received:      func(_ context.Context, m transport.Message) { m.Ack() },
		})
	})
	kit.Receive(t, "connected", connected)
	speak := func(what string) {
		t.Helper()
		speaks := kit.Run(w, "OCM's agent speaks", func(ctx context.Context) error { // until the hub has said so, which may take longer than it may be silent
			for again := time.NewTicker(500 * time.Millisecond); ; {
				event, err := wire.Encode(&wire.SpecResync{Agent: "ocm-agent", Cluster: "ocm", Source: "hub1"}, time.Now())
				kit.NoError(t, err)
				if err := ocm.Publish(ctx, "sources/hub1/clusters/ocm/agentevents", event); err != nil && ctx.Err() == nil {
					return err
				}
				select {
				case <-again.C:
				case <-ctx.Done():
					return nil
				}
			}
		})
		w.await("ocm", what, available)
		speaks()
	}
	speak("available")
	w.await("ocm", "silent", silent)
	speak("available again")
	stop() // it says no good bye
	w.await("ocm", "silent again", silent)
}
