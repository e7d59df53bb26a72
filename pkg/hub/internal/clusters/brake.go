package clusters

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// The fleet brake: while at least brakeMin clusters, and at least brakePercent of the clusters that
// were present until lately, are absent at the same time, the fault is taken to be the broker's,
// the network's or the hub's, and no cluster gets the taint unreachable. The node lifecycle
// controller of Kubernetes has the same limits for the nodes of a zone.
const (
	brakeMin     = 3
	brakePercent = 55
)

// census counts the accepted clusters that the brake goes by. Those that were never heard from, and
// those that have the taint already, are in neither number.
type census struct {
	present int
	absent  int // within the grace, or held by the brake
}

// brakes reports whether so many clusters are absent that no taint is set.
func (c census) brakes() bool {
	return c.absent >= brakeMin && c.absent*100 >= brakePercent*(c.present+c.absent)
}

// vote is how a cluster is counted.
type vote uint8

const (
	votesNothing vote = iota
	votesPresent
	votesAbsent
)

// add returns c with n more, or fewer, clusters of a vote.
func (c census) add(v vote, n int) census {
	switch v {
	case votesPresent:
		c.present += n
	case votesAbsent:
		c.absent += n
	}
	return c
}

// voteOf returns how a cluster is counted; stored is nil if it has no ManagedCluster.
func voteOf(p presence, stored *clusterv1.ManagedCluster) vote {
	switch {
	case stored == nil || !stored.Spec.HubAcceptsClient || stored.DeletionTimestamp != nil || p.state == unseen:
		return votesNothing
	case p.expected(): // nobody knows better of those that were present
		return votesPresent
	case hasTaint(stored.Spec.Taints, clusterv1.ManagedClusterTaintUnreachable):
		return votesNothing
	}
	return votesAbsent
}

// failover is when clusters may get the taint unreachable.
type failover struct {
	// held: not now. The cluster is queued when that ends.
	held bool
	// from is the earliest time, whatever the condition of the cluster says; zero: at any time.
	from time.Time
}

// brakeChange is an engagement or a release of the brake, to be reported.
type brakeChange struct {
	cluster wire.ClusterName // with which it happened
	engaged bool
	census  census
}

// recount updates the census after a change of a cluster, and the brake. mu is held.
func (x *clusterIndex) recount(name wire.ClusterName, e *knownCluster, now time.Time) {
	after := votesNothing
	if e.registered {
		after = voteOf(e.presence, x.stored(name))
	}
	if after == e.vote {
		return
	}
	x.census = x.census.add(e.vote, -1).add(after, 1)
	e.vote = after
	x.brake(name, now)
}

// allRead notes that a watch event has shown each ManagedCluster, and has the absent ones reconciled.
func (x *clusterIndex) allRead(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.read = true
	var first wire.ClusterName
	for name, e := range x.entries {
		if e.vote == votesAbsent {
			x.enqueue(name, e)
			if first == "" || name < first {
				first = name
			}
		}
	}
	x.brake(first, now)
}

// brake engages or releases the brake as the census says, after a change of a cluster. Until all clusters are read it
// says nothing: absent ones may have been read first. mu is held.
func (x *clusterIndex) brake(name wire.ClusterName, now time.Time) {
	engaged := x.read && x.census.brakes()
	if engaged == x.braked {
		return
	}
	x.braked = engaged
	x.brakeChanges = append(x.brakeChanges, brakeChange{name, engaged, x.census})
	if !engaged {
		// The others are expected to return too: they have the whole grace again.
		x.delayTaints(now.Add(x.policy.limits.grace))
	}
	x.wakeTimer() // which reports it
}

// delayTaints has no taint set before a time, and all absent clusters reconciled: once per release
// of the brake and per connection. mu is held.
func (x *clusterIndex) delayTaints(until time.Time) {
	if until.After(x.taintsFrom) {
		x.taintsFrom = until
	}
	for name, e := range x.entries {
		if e.vote == votesAbsent {
			x.enqueue(name, e)
		}
	}
}

// failoverOf returns when a cluster may get the taint unreachable. mu is held.
func (x *clusterIndex) failoverOf(e *knownCluster) failover {
	f := failover{held: !x.online || !x.read || x.braked, from: x.taintsFrom}
	if e.taintsFrom.After(f.from) {
		f.from = e.taintsFrom
	}
	return f
}

// takeBrakeChanges returns the changes of the brake since the last call.
func (x *clusterIndex) takeBrakeChanges() []brakeChange {
	x.mu.Lock()
	defer x.mu.Unlock()
	changes := x.brakeChanges
	x.brakeChanges = nil
	return changes
}

// reportBrake logs the changes of the brake and records events about them.
func (c *Clusters) reportBrake() {
	for _, change := range c.index.takeBrakeChanges() {
		of := change.census.present + change.census.absent
		c.cfg.Logger.Warn("fleet brake changed", "engaged", change.engaged, "absent", change.census.absent, "of", of, "cluster", change.cluster)
		e := event{corev1.EventTypeWarning, clusterv1.EventFleetAbsent, "no cluster gets the taint unreachable, and no work moves, until more are back"}
		if !change.engaged {
			e = event{corev1.EventTypeNormal, clusterv1.EventFleetBack, "absent clusters get the taint unreachable again, after the grace"}
		}
		e.message = fmt.Sprintf("%d of %d clusters are absent: %s", change.census.absent, of, e.message)
		if stored := c.index.stored(change.cluster); stored != nil {
			c.recordEvents(stored, e)
		}
	}
}
