package leadership

import (
	"github.com/prometheus/client_golang/prometheus"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

var (
	heldByHubDesc = prometheus.NewDesc("workwire_hub_clusters_by_hub", "With --cluster-selector: ManagedClusters by the hub that serves them, as "+
		"every hub sees them; an empty hub is for those that no hub serves.", []string{"hub"}, nil)
	servingDesc = prometheus.NewDesc("workwire_hub_serving", "With --cluster-selector: 1 while the hub with this name is connected to the broker, "+
		"else 0; a standby is not.", []string{"hub"}, nil)
	contendedDesc = prometheus.NewDesc("workwire_hub_clusters_contended", "With --cluster-selector: ManagedClusters that this hub selects and another "+
		"hub has served for more than 30 seconds.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (s *Shard) Describe(to chan<- *prometheus.Desc) {
	to <- heldByHubDesc
	to <- servingDesc
	to <- contendedDesc
}

// Collect implements [prometheus.Collector]: which hubs hold how many clusters; nothing for all clusters. It
// costs one pass over the clusters.
func (s *Shard) Collect(to chan<- prometheus.Metric) {
	if s == nil {
		return
	}
	hubs := map[string]int{"": 0, s.cfg.Hub: 0}
	for _, cluster := range s.cfg.ManagedClusters.All() {
		hubs[cluster.Annotations[clusterv1.HubAnnotationKey]]++
	}
	for hub, n := range hubs {
		to <- prometheus.MustNewConstMetric(heldByHubDesc, prometheus.GaugeValue, float64(n), hub)
	}
	serving := 0.0
	if s.cfg.Connected() {
		serving = 1
	}
	to <- prometheus.MustNewConstMetric(servingDesc, prometheus.GaugeValue, serving, s.cfg.Hub)
	to <- prometheus.MustNewConstMetric(contendedDesc, prometheus.GaugeValue, float64(s.contended()))
}
