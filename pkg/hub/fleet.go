package hub

import (
	"time"

	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// fleet decides which clusters get works, and is told what is received from them: *clusters.Clusters.
type fleet interface {
	Accepted(cluster wire.ClusterName) bool
	MessageReceived(cluster wire.ClusterName, p *wire.Presence)
	ConnectionChanged(up bool)
	UnknownWorks(cluster wire.ClusterName, listed []wire.SpecVersion, all bool)
	UnknownStatus(s *wire.Status)
	DivergenceChanged(cluster wire.ClusterName, since time.Time)
	UntrustedChanged(cluster wire.ClusterName, u delivery.Untrusted)
	NoiseChanged(cluster wire.ClusterName, n quota.Noise)
}

// openFleet is the fleet without the controller of clusters: it accepts all of them.
type openFleet struct{}

func (openFleet) Accepted(wire.ClusterName) bool                          { return true }
func (openFleet) MessageReceived(wire.ClusterName, *wire.Presence)        {}
func (openFleet) ConnectionChanged(bool)                                  {}
func (openFleet) UnknownWorks(wire.ClusterName, []wire.SpecVersion, bool) {}
func (openFleet) UnknownStatus(*wire.Status)                              {}
func (openFleet) DivergenceChanged(wire.ClusterName, time.Time)           {}
func (openFleet) UntrustedChanged(wire.ClusterName, delivery.Untrusted)   {}
func (openFleet) NoiseChanged(wire.ClusterName, quota.Noise)              {}

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
