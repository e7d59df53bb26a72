package clusters

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the fleet. Those of its size are read from the roster.
type metrics struct {
	changes, unnoted, writes *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, labels)
	}
	return &metrics{
		changes: counter("presence_changes_total", "Changes of the presence of clusters, by what they became: present, "+
			"disconnected, silent or missing.", "to"),
		unnoted: counter("clusters_unnoted_total", "Messages of clusters that are not taken note of, as they have no ManagedCluster "+
			"and their name can not be one's (invalid_name), or there are too many such clusters (too_many).", "reason"),
		writes: counter("cluster_writes_total", "Writes about clusters, by what: register, namespace, status or spec, and by "+
			"result: ok, exists, gone, canceled, conflict or failed (the last two are tried again).", "what", "result"),
	}
}

func (m *metrics) count(what string, err error) { m.writes.WithLabelValues(what, result(err)).Inc() }

// register registers m and the metrics of r with registerer, if there is one.
func (m *metrics) register(registerer prometheus.Registerer, r *roster) error {
	if registerer == nil {
		return nil
	}
	return errors.Join(registerer.Register(m.changes), registerer.Register(m.unnoted), registerer.Register(m.writes),
		registerer.Register(size{r}))
}

// size is the collector of how many clusters there are.
type size struct{ roster *roster }

var (
	clustersDesc = prometheus.NewDesc("workwire_hub_clusters", "Clusters that the hub knows, by state: present, disconnected, silent, "+
		"missing, unseen, or unregistered for those without a ManagedCluster.", []string{"state"}, nil)
	acceptedDesc = prometheus.NewDesc("workwire_hub_clusters_accepted", "ManagedClusters that are accepted.", nil, nil)
)

// Describe is part of [prometheus.Collector].
func (s size) Describe(to chan<- *prometheus.Desc) { to <- clustersDesc; to <- acceptedDesc }

// Collect is part of [prometheus.Collector].
func (s size) Collect(to chan<- prometheus.Metric) {
	states, accepted := s.roster.count()
	for state, n := range states {
		to <- prometheus.MustNewConstMetric(clustersDesc, prometheus.GaugeValue, float64(n), state)
	}
	to <- prometheus.MustNewConstMetric(acceptedDesc, prometheus.GaugeValue, float64(accepted))
}

// count gives the number of clusters by state, and of those accepted. It is one pass
// over them.
func (r *roster) count() (states map[string]int, accepted int) {
	states = map[string]int{"unregistered": 0}
	for _, s := range []state{unseen, present, ended, silent, missing} {
		states[string(s)] = 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.entries {
		if e.stored == nil {
			states["unregistered"]++
			continue
		}
		states[string(e.presence.state)]++
		if r.policy.accepts(e.stored) {
			accepted++
		}
	}
	return states, accepted
}
