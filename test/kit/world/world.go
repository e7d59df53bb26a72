// Package world starts what most tests of several parts together need: a broker, hubs, agents and
// sources of the SDK, in the process of the test. They have names of their own, so that worlds share the
// control planes of a package, see [controlplane.Main].
//
//	w := world.New(t, world.Options{Hub: hubPlane, Spokes: []*controlplane.Plane{spokePlane}})
//	w.StartBroker(broker.Config{})
//	w.StartHub()
//	w.StartAgent(0)
//	works := w.Works(0)
//	w.Create(works, w.Work(0, "web", "1", "a"))
//	w.Applied(works, "web")
//	w.Holds(0, map[string]string{"a": "1"})
//
// All of it ends with the test. [World.Processes] runs the broker, hubs and agents as processes.
package world

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/memory"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/brokertest"
	"github.com/workwire/workwire/test/kit/controlplane"
)

// Password is that of all users of the broker, unless it is a process.
const Password = "secret"

// Options say what a world has.
type Options struct {
	// Hub is the control plane of hubs; nil for a world without hubs.
	Hub *controlplane.Plane
	// Spokes are the control planes of the clusters, one for each cluster that has an agent of its own.
	Spokes []*controlplane.Plane
	// Source is the source id of the hub, a unique name by default.
	Source wire.SourceID
	// Clusters are the names of the clusters, unique names by default. Those beyond Spokes have agents that
	// the test scripts.
	Clusters []wire.ClusterName
	// Topics are those of the hub and the agents, the topics of Source by default.
	Topics wire.Topics
	// Memory has a broker in memory, for tests that are not about the network.
	Memory bool
}

// World is the names of a hub, another source and clusters, and what runs under them. The goroutine of
// the test may use it.
type World struct {
	testing.TB
	Hub    *controlplane.Plane
	Spokes []*controlplane.Plane
	Source wire.SourceID // of the hub
	Other  wire.SourceID // another source
	Topics wire.Topics
	// Clusters are the clusters. Each has a namespace at the hub.
	Clusters []wire.ClusterName
	// Targets are namespaces for objects, on the cluster of each.
	Targets []string
	// Users are a user for each source and cluster.
	Users []broker.User
	// Broker is what clients connect to; nil until it is started.
	Broker *brokertest.Running
	// Memory is the broker in memory, nil for others.
	Memory *memory.Broker
	// BrokerHost is the address of the broker that agents name their AppliedManifestWorks by; that of
	// Broker by default.
	BrokerHost string

	password func(user string) string // nil: all have Password
}

// New returns a world in which nothing runs yet.
func New(t testing.TB, o Options) *World {
	t.Helper()
	w := &World{TB: t, Hub: o.Hub, Spokes: o.Spokes, Source: o.Source, Other: wire.SourceID(kit.Unique("other")), Topics: o.Topics, Clusters: o.Clusters}
	if w.Source == "" {
		w.Source = wire.SourceID(kit.Unique("hub"))
	}
	if w.Topics == (wire.Topics{}) {
		w.Topics = Topics(w.Source)
	}
	if o.Memory {
		w.Memory, w.BrokerHost = memory.NewBroker(), kit.Unique("broker")
	}
	w.Users = []broker.User{
		{Username: string(w.Source), Password: Password, Role: acl.Source}, {Username: string(w.Other), Password: Password, Role: acl.Source},
	}
	for i, spoke := range w.Spokes {
		if len(w.Clusters) == i {
			w.Clusters = append(w.Clusters, wire.ClusterName(kit.Unique("cluster")))
		}
		w.Targets = append(w.Targets, spoke.Namespace(t, "target"))
	}
	for _, cluster := range w.Clusters {
		if w.Hub != nil {
			w.Hub.CreateNamespace(t, string(cluster))
		}
		w.Users = append(w.Users, broker.User{Username: string(cluster), Password: Password, Role: acl.Agent})
	}
	return w
}

// On returns the world for a subtest.
func (w *World) On(t testing.TB) *World {
	copied := *w
	copied.TB = t
	return &copied
}

// Via returns the world for clients that reach the broker by another address, such as that of a proxy.
func (w *World) Via(address string) *World {
	copied := *w
	copied.Broker = &brokertest.Running{Addr: address}
	return &copied
}

// Topics returns the topics of a source, with broadcasts; those of all sources for "+".
func Topics(source wire.SourceID) wire.Topics {
	return wire.Topics{
		SourceEvents: fmt.Sprintf("sources/%s/clusters/+/sourceevents", source), AgentEvents: fmt.Sprintf("sources/%s/clusters/+/agentevents", source),
		SourceBroadcast: "sources/+/sourcebroadcast", AgentBroadcast: "clusters/+/agentbroadcast",
	}
}

// Brokers are the brokers that tests of the protocol run on, by name.
var Brokers = map[string]func(*World){
	"work-broker": func(w *World) { w.StartBroker(broker.Config{}) },
	"mosquitto":   (*World).StartMosquitto,
}

// StartBroker starts the project's broker with the users of the world.
func (w *World) StartBroker(c broker.Config) {
	w.Helper()
	c.Users = w.Users
	w.Broker = brokertest.Start(w, c)
}

// StartMosquitto starts Mosquitto. It skips the test when Mosquitto is not installed.
func (w *World) StartMosquitto() {
	w.Helper()
	w.Broker = brokertest.StartMosquitto(w, w.Users)
}

// Transport returns a connection of a user to the broker, not yet open. It logs to the output of the test
// by default.
func (w *World) Transport(user, clientID string, topics wire.Topics, logger ...*slog.Logger) transport.Transport {
	w.Helper()
	if w.Memory != nil {
		return w.Memory.Client(clientID)
	}
	password := Password
	if w.password != nil {
		password = w.password(user)
	}
	tr, err := mqtt.New(mqtt.Config{ClientID: clientID, Logger: append(logger, kit.Logger(w))[0].With("client", clientID), Broker: config.Config{
		BrokerHost: w.Broker.Addr, Username: user, Password: password, Topics: topics,
	}})
	kit.NoError(w, err)
	return tr
}

// logger returns a logger to the output of the test and to log.
func (w *World) logger(log *kit.Log) *slog.Logger {
	return slog.New(slog.NewTextHandler(io.MultiWriter(w.Output(), log), &slog.HandlerOptions{Level: slog.LevelDebug}))
}
