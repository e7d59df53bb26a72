package hub

import (
	"github.com/workwire/workwire/pkg/hub/internal/dashboard"
)

// DashboardOptions configure the listener of the dashboard by flags.
type DashboardOptions = dashboard.Options

// Dashboard returns the dashboard of this hub, to be run beside it. It shows clusters and replica sets
// if a controller of this hub watches them.
func (h *Hub) Dashboard(options DashboardOptions) (*dashboard.Dashboard, error) {
	cfg := dashboard.Config{
		Options: options, REST: h.cfg.REST, Works: h.cache, Now: h.cfg.Now,
		Leading: h.leadership.Leads, Connected: h.delivery.Connected, Current: h.informers.Ready,
		Registerer: h.cfg.Registerer, Logger: h.cfg.Logger,
	}
	if h.clusters != nil || h.enabled(ControllerPlacement) {
		cfg.Clusters = h.informers.ManagedClusters()
	}
	if h.enabled(ControllerReplicaSet) {
		cfg.ReplicaSets = h.informers.ManifestWorkReplicaSets()
	}
	return dashboard.New(cfg)
}
