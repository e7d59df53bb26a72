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
	*delivery.Engine // ProbeCluster, WorkRemoved, ClusterLost
	h                *Hub
}

var _ clusters.Listener = clusterListener{}

// AcceptanceChanged implements [clusters.Listener].
func (l clusterListener) AcceptanceChanged(cluster wire.ClusterName) {
	l.h.works.AcceptanceChanged(cluster)
	l.ResumeCluster(cluster)
}

// ClusterGained implements [clusters.Listener].
func (l clusterListener) ClusterGained(cluster wire.ClusterName) {
	l.Engine.ClusterGained(cluster)
	l.h.works.ClusterGained(cluster)
}

// PauseEnded implements [clusters.Listener].
func (l clusterListener) PauseEnded(cluster wire.ClusterName) {
	for work := range l.h.cache.OfCluster(cluster) {
		l.WorkChanged(work.UID)
	}
}
