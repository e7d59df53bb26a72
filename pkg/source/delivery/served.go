package delivery

import (
	"github.com/workwire/workwire/pkg/wire"
)

// serves reports whether this program serves a cluster.
func (e *Engine) serves(cluster wire.ClusterName) bool {
	return e.config.ClusterServed == nil || e.config.ClusterServed(cluster)
}

// begin notes that a publish or a write about a cluster is under way until end is called. It reports
// false if this program does not serve the cluster.
func (e *Engine) begin(cluster wire.ClusterName) bool {
	if e.config.ClusterServed == nil {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.config.ClusterServed(cluster) {
		return false
	}
	e.core.cluster(cluster).underWay++
	return true
}

// end ends what begin began.
func (e *Engine) end(cluster wire.ClusterName) {
	if e.config.ClusterServed == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.core.cluster(cluster)
	c.underWay--
	e.core.release(c)
}

// Busy reports whether a publish to a cluster or a write about its works is under way. Once
// [Config.ClusterServed] is false for the cluster, nothing new begins.
func (e *Engine) Busy(cluster wire.ClusterName) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c, ok := e.core.clusters[cluster]
	return ok && c.underWay > 0
}

// ClusterGained begins to serve a cluster, for which [Config.ClusterServed] is true from now on, as a
// start of the Engine does: its works are published unless their statuses say that the agent has them,
// and its agent is asked for the statuses that the WorkStore does not have. It does not block.
func (e *Engine) ClusterGained(cluster wire.ClusterName) {
	e.clusterServed(cluster, true) // its ManagedCluster may have been deleted in between
	for work := range e.config.Works.ListCluster(cluster) {
		e.WorkChanged(work.UID)
	}
	e.step(clusterResumed{cluster})
	e.resyncQueue.add(cluster, resyncTask{requestStatuses: true, probe: true})
}

// ClusterLost forgets what is known of the works of a cluster that this program no longer serves: what
// another one does meanwhile is not seen here. Nothing about it must be under way. It does not block.
func (e *Engine) ClusterLost(cluster wire.ClusterName) { e.clusterServed(cluster, false) }

func (e *Engine) clusterServed(cluster wire.ClusterName, here bool) {
	// What waits, as after a write that failed, may be older than what another program stores.
	e.statusQueue.clear(func(k workKey) bool { return k.cluster == cluster })
	e.resyncQueue.clear(func(name wire.ClusterName) bool { return name == cluster })
	e.step(clusterServed{cluster, here})
}
