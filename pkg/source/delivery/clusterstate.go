package delivery

import (
	"github.com/workwire/workwire/pkg/wire"
)

// ClusterState is what a source does about a cluster:
//
//	elsewhere ◀──▶ paused ◀──▶ open ◀──▶ elsewhere
//
// A cluster that is no longer elsewhere is one that nothing is known of, as after a start.
type ClusterState uint8

const (
	// ClusterOpen: its works are published.
	ClusterOpen ClusterState = iota
	// ClusterPaused: publishes wait until it is open, and of what its agents list, nothing is kept that the
	// source does not have.
	ClusterPaused
	// ClusterElsewhere: another program under the same source id serves it. Nothing is published to it, no
	// status of it is stored, what it says is dropped, and nothing is known of its works.
	ClusterElsewhere
)

// SetCluster sets the state of a cluster. Its agent is asked for a message once it is open. Once it is no longer
// [ClusterElsewhere], its works are published unless their statuses say that the agent has them, and the agent is
// asked for the statuses that the WorkStore does not have. Nothing about the cluster begins once SetCluster has
// returned with ClusterElsewhere, see [Engine.Busy]. It does not block.
func (e *Engine) SetCluster(cluster wire.ClusterName, state ClusterState) {
	e.setCluster(&clusterSet{cluster: cluster, state: state})
}

// RestartCluster is SetCluster for a cluster that another program has served until now. If its state here is not
// [ClusterElsewhere], what is known of it is forgotten all the same.
func (e *Engine) RestartCluster(cluster wire.ClusterName, state ClusterState) {
	e.setCluster(&clusterSet{cluster: cluster, state: state, gained: true})
}

func (e *Engine) setCluster(in *clusterSet) {
	if e.step(in); in.found {
		for work := range e.config.Works.ListCluster(in.cluster) {
			e.WorkChanged(work.UID)
		}
	}
}

// stateOf returns the state of a cluster.
func (e *Engine) stateOf(cluster wire.ClusterName) ClusterState {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.stateOf(cluster)
}

// Busy reports whether something about a cluster is under way: a publish, or a write about its works.
func (e *Engine) Busy(cluster wire.ClusterName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.core.clusters[cluster]
	return ok && c.underWay > 0
}
