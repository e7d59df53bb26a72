// Package transporttest is the behaviour that every transport must show, as one
// suite of tests, and what such tests need:
//
//	func TestTransport(t *testing.T) {
//		transporttest.Run(t, func(t *testing.T) transporttest.Broker { ... })
//	}
package transporttest

import (
	"runtime"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/transport"
)

// Who connects in the suite, and to which topics. A broker with access rules
// must let the hub and the clusters do what docs/protocol.md, Topics, says, and
// no more.
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
	// Client makes a transport that connects as user, one of those above, with a
	// client id that is always the same for that user.
	Client func(user string) transport.Transport
	// Cut ends the user's connection and keeps it from coming back until Restore.
	Cut, Restore func(user string)
	// Limit is the maximum packet size that the broker announces.
	Limit int
	// Restart restarts the broker with its sessions, for [RunRestart].
	Restart func()
	// Forget makes the broker forget all sessions, while no client is connected,
	// for [RunForget].
	Forget func()
}

// Run runs the suite, with a new broker for each test.
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

// RunRestart is the part of the suite for brokers that can be restarted.
func RunRestart(t *testing.T, start func(t *testing.T) Broker) {
	t.Run("Restart", func(t *testing.T) { restart(t, start(t)) })
}

// RunForget is the part of the suite for brokers that can forget sessions.
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

// Eventually waits until condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for !condition() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-deadline:
			stacks := make([]byte, 1<<20)
			t.Fatalf("waited %s for %s\n%s", patience, what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
