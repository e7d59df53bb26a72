package hub

import (
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// fleet decides which clusters get works, by what is received from them among other things:
// *clusters.Clusters.
type fleet interface {
	Accepted(cluster wire.ClusterName) bool
	Observe(event delivery.Event)
}

// openFleet is the fleet without the controller of clusters: it accepts all of them.
type openFleet struct{}

func (openFleet) Accepted(wire.ClusterName) bool { return true }
func (openFleet) Observe(delivery.Event)         {}

// observe passes on what the delivery engine notices.
func (h *Hub) observe(event delivery.Event) {
	h.fleet.Observe(event)
	switch event := event.(type) {
	case delivery.ConnectionChanged:
		h.works.ConnectionChanged(event.Up)
		h.leadership.ConnectionChanged()
	case delivery.Publication:
		h.works.Published(event)
	case delivery.InstancesChanged:
		h.leadership.OthersChanged(event.Others)
	}
}

// clusterListener forwards what [clusters.Clusters] reports to those who act on it.
type clusterListener struct {
	*delivery.Engine // ProbeCluster, WorkRemoved
	h                *Hub
}

var _ clusters.Listener = clusterListener{}

// AcceptanceChanged implements [clusters.Listener].
func (l clusterListener) AcceptanceChanged(cluster wire.ClusterName) {
	l.h.works.AcceptanceChanged(cluster)
	l.h.tellCluster(cluster)
}

// ClusterChanged implements [clusters.Listener].
func (l clusterListener) ClusterChanged(cluster wire.ClusterName) { l.h.tellCluster(cluster) }

// ClusterGained implements [clusters.Listener].
func (l clusterListener) ClusterGained(cluster wire.ClusterName) {
	l.h.tell(cluster, l.RestartCluster) // its ManagedCluster may have been deleted in between
	l.h.works.ClusterGained(cluster)
}

// ClusterLost implements [clusters.Listener].
func (l clusterListener) ClusterLost(cluster wire.ClusterName) { l.h.tellCluster(cluster) }

// unknownClusters returns the state of the clusters without a ManagedCluster.
func (h *Hub) unknownClusters() delivery.ClusterState {
	switch {
	case h.clusters != nil && h.cfg.AutoRegister:
		return delivery.ClusterPaused
	case h.cfg.ClusterSelector != nil:
		return delivery.ClusterElsewhere
	default:
		return delivery.ClusterOpen
	}
}

// tellCluster tells the delivery engine the state of a cluster. Of several calls, the last one has read the
// newest state. Before tellClusters it does nothing: no cluster is accepted before the caches are filled.
func (h *Hub) tellCluster(cluster wire.ClusterName) { h.tell(cluster, h.delivery.SetCluster) }

// tell does what tellCluster says by set.
func (h *Hub) tell(cluster wire.ClusterName, set func(wire.ClusterName, delivery.ClusterState)) {
	h.telling.Lock()
	defer h.telling.Unlock()
	if h.told {
		set(cluster, h.stateOf(cluster))
	}
}

// stateOf returns the state of a cluster as the caches have it.
func (h *Hub) stateOf(cluster wire.ClusterName) delivery.ClusterState {
	switch {
	case !h.leadership.Shard.Serves(cluster):
		return delivery.ClusterElsewhere
	case h.fleet.Accepted(cluster):
		return delivery.ClusterOpen
	default:
		return delivery.ClusterPaused
	}
}

// tellClusters tells the delivery engine the states of the clusters that are there at the start.
func (h *Hub) tellClusters() {
	if h.clusters == nil {
		return
	}
	h.telling.Lock()
	defer h.telling.Unlock()
	h.told = true
	for _, cluster := range h.informers.ManagedClusters().All() {
		h.delivery.SetCluster(wire.ClusterName(cluster.Name), h.stateOf(wire.ClusterName(cluster.Name)))
	}
}

// PauseEnded implements [clusters.Listener].
func (l clusterListener) PauseEnded(cluster wire.ClusterName) {
	for work := range l.h.cache.OfCluster(cluster) {
		l.WorkChanged(work.UID)
	}
}
