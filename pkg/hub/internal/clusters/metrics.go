package clusters

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/wire"
)

// metrics counts what happens to clusters. How many there are is read from the index.
type metrics struct {
	changes, ignored, writes *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		changes: controller.NewCounter("presence_changes_total", "Changes of the presence of clusters, by new state: present, disconnected, silent, missing or unvouched (the hub has no connection).", "to"),
		ignored: controller.NewCounter("clusters_ignored_total", "Messages of clusters without a ManagedCluster that were not recorded, by reason: "+
			"invalid_name (of a ManagedCluster), too_many (such clusters) or no_key (to verify its statuses with); and statuses of works that the hub does not know: too_many_held (more "+
			"than 20000 of one cluster).", "reason"),
		writes: controller.NewCounter("cluster_writes_total", "Writes about clusters, by what: register, namespace, status or spec, and by "+
			"result: ok, exists, gone, canceled, conflict or failed (the last two are retried).", "what", "result"),
	}
}

// countWrite counts a write that returned err.
func (m *metrics) countWrite(what string, err error) {
	m.writes.WithLabelValues(what, controller.Result(err)).Inc()
}

// sizeCollector collects how many clusters there are.
type sizeCollector struct{ index *clusterIndex }

var (
	clustersDesc = prometheus.NewDesc("workwire_hub_clusters", "Clusters that the hub knows, by state: present, disconnected, silent, "+
		"missing, unvouched, unseen, or unregistered for those without a ManagedCluster.", []string{"state"}, nil)
	acceptedDesc = prometheus.NewDesc("workwire_hub_clusters_accepted", "ManagedClusters that are accepted.", nil, nil)
	brakeDesc    = prometheus.NewDesc("workwire_hub_fleet_absence_brake", "1 while so many clusters are absent at once that none "+
		"gets the taint unreachable, else 0.", nil, nil)
	heldDesc = prometheus.NewDesc("workwire_hub_works_deletion_held", "Works that the agent of a cluster keeps although the hub does not "+
		"know them; of clusters that have any.", []string{"cluster"}, nil)
	divergedDesc = prometheus.NewDesc("workwire_hub_cluster_diverged_seconds", "Seconds for which the works of an agent have differed from "+
		"those of the hub; of clusters for which that is longer than a minute.", []string{"cluster"}, nil)
)

// Describe implements [prometheus.Collector].
func (s sizeCollector) Describe(to chan<- *prometheus.Desc) {
	to <- clustersDesc
	to <- acceptedDesc
	to <- brakeDesc
	to <- heldDesc
	to <- divergedDesc
}

// Collect implements [prometheus.Collector].
func (s sizeCollector) Collect(to chan<- prometheus.Metric) {
	states, accepted, brake := s.index.count()
	for state, n := range states {
		to <- prometheus.MustNewConstMetric(clustersDesc, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(acceptedDesc, prometheus.GaugeValue, float64(accepted))
	to <- prometheus.MustNewConstMetric(brakeDesc, prometheus.GaugeValue, brake)
	s.index.collectWorks(to, time.Now())
}

// collectWorks collects what agents hold otherwise than the hub.
func (x *clusterIndex) collectWorks(to chan<- prometheus.Metric, now time.Time) {
	held, differ := map[wire.ClusterName]int{}, map[wire.ClusterName]time.Time{}
	x.mu.Lock()
	for name, e := range x.entries { // once per scrape
		if e.held != nil && len(e.held.works) > 0 {
			held[name] = len(e.held.works)
		}
		if since := e.findings[diverged].since; !since.IsZero() {
			differ[name] = since
		}
	}
	x.mu.Unlock()
	for name, n := range held {
		to <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, float64(n), string(name))
	}
	for name, since := range differ {
		to <- prometheus.MustNewConstMetric(divergedDesc, prometheus.GaugeValue, now.Sub(since).Seconds(), string(name))
	}
}

// count returns the number of clusters by state, the number of those accepted, and 1 if the fleet
// brake is engaged. It is one pass over them.
func (x *clusterIndex) count() (states map[string]int, accepted int, brake float64) {
	states = map[string]int{"unregistered": 0}
	for _, s := range []presenceState{unseen, present, ended, silent, missing, unvouched} {
		states[string(s)] = 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for name, e := range x.entries {
		stored := x.stored(name)
		if stored == nil {
			states["unregistered"]++
			continue
		}
		states[string(e.presence.state)]++
		if x.policy.accepts(stored) {
			accepted++
		}
	}
	if x.braked {
		brake = 1
	}
	return states, accepted, brake
}
