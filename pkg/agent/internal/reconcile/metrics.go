package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are explained in docs/operations.md.
type metrics struct {
	duration  *prometheus.HistogramVec
	manifests *prometheus.CounterVec
	refused   *prometheus.CounterVec
	repairs   *prometheus.CounterVec
	flapping  prometheus.Gauge
}

func newMetrics(registerer prometheus.Registerer, table *Table) *metrics {
	factory := promauto.With(registerer)
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "workwire_agent_queue_length", Help: "Works that wait for a worker.",
	}, func() float64 { return float64(table.queue.Len()) })
	return &metrics{
		duration: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workwire_agent_reconcile_duration_seconds", Help: "Time to reconcile one work, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
		manifests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_manifests_total", Help: "Manifests reconciled, by action.",
		}, []string{"action"}),
		refused: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_policy_refusals_total",
			Help: "Manifests that the policy of the cluster's owner has refused, each time their work is reconciled, by rule.",
		}, []string{"rule"}),
		repairs: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_repairs_total",
			Help: "Objects that somebody else had changed or deleted and that were written again, by action: created or updated.",
		}, []string{"action"}),
		flapping: factory.NewGauge(prometheus.GaugeOpts{
			Name: "workwire_agent_objects_flapping",
			Help: "Objects that somebody else changes or deletes again and again.",
		}),
	}
}

// countFlapping counts the objects of e that flap. The worker that holds e calls it.
func (m *metrics) countFlapping(e *entry) {
	now := e.history.repairs.countFlapping()
	m.flapping.Add(float64(now - e.flapping))
	e.flapping = now
}
