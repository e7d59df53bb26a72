// Package transporttest contains the tests that every transport must pass, and their tools:
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transporttest.Broker { ... })
//	}
package transporttest

import (
	"testing"

	"github.com/workwire/workwire/pkg/transport"
)

// The users and topics of the tests. A broker with access rules must allow the hub and the clusters
// what docs/protocol.md, Topics, describes, and nothing else.
const (
	Hub     = "hub1"
	Cluster = "cluster1"
	Other   = "cluster2"

	ClusterSpecs    = "sources/hub1/clusters/cluster1/sourceevents"
	OtherSpecs      = "sources/hub1/clusters/cluster2/sourceevents"
	ClusterStatuses = "sources/hub1/clusters/cluster1/agentevents"
	OtherStatuses   = "sources/hub1/clusters/cluster2/agentevents"
	AllStatuses     = "sources/hub1/clusters/+/agentevents"
)

// Broker is a running broker under test, without sessions.
type Broker struct {
	// Client returns a transport that connects as user, one of those above, with a constant client
	// id.
	Client func(user string) transport.Transport
	// Cut ends the user's connection and refuses new ones until Restore.
	Cut, Restore func(user string)
	// Limit is the maximum packet size that the broker announces.
	Limit int
	// Restart restarts the broker with its sessions, for [RunRestart].
	Restart func()
	// Forget removes all sessions while no client is connected, for [RunForget].
	Forget func()
}

// Run runs the tests, each with a new broker.
func Run(t *testing.T, start func(t *testing.T) Broker) {
	tests := map[string]func(*testing.T, Broker){
		"Delivers":          delivers,
		"Order":             order,
		"Parallel":          parallel,
		"Wildcards":         wildcards,
		"Redelivers":        redelivers,
		"AcksInAnyOrder":    acksInAnyOrder,
		"QueuesOffline":     queuesOffline,
		"Reconnects":        reconnects,
		"WaitsForConnected": waitsForConnected,
		"TooLarge":          tooLarge,
		"NotAuthorized":     notAuthorized,
		"Unreachable":       unreachable,
		"EndsCleanly":       endsCleanly,
		"Will":              will,
		"RunsOnce":          runsOnce,
		"Cancelled":         cancelled,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

// RunRestart runs the tests for brokers that can be restarted.
func RunRestart(t *testing.T, start func(t *testing.T) Broker) {
	t.Run("Restart", func(t *testing.T) { restart(t, start(t)) })
}

// RunForget runs the tests for brokers that can remove sessions.
func RunForget(t *testing.T, start func(t *testing.T) Broker) {
	t.Run("Forgotten", func(t *testing.T) { forgotten(t, start(t)) })
}

// pair starts the hub and the agent of the cluster.
func pair(t *testing.T, b Broker) (hub, agent *Client) {
	t.Helper()
	agent = Start(t, b.Client(Cluster), ClusterSpecs)
	hub = Start(t, b.Client(Hub), AllStatuses)
	for _, c := range []*Client{agent, hub} {
		if c.WaitConnected().Resumed {
			t.Fatal("the first connection is resumed")
		}
	}
	return hub, agent
}
