package hub

import "github.com/workwire/workwire/pkg/wire"

// fleet decides which clusters get works, and is told what is heard from them.
type fleet interface {
	// Accepted reports whether a cluster gets works.
	Accepted(cluster wire.ClusterName) bool
	// Heard handles a message of a cluster; p is nil for messages other than presence.
	Heard(cluster wire.ClusterName, p *wire.Presence)
	// Connected and Lost follow the hub's own connection to the broker.
	Connected()
	Lost()
}

// openFleet accepts all clusters, without the controller of clusters.
type openFleet struct{}

func (openFleet) Accepted(wire.ClusterName) bool         { return true }
func (openFleet) Heard(wire.ClusterName, *wire.Presence) {}
func (openFleet) Connected()                             {}
func (openFleet) Lost()                                  {}
