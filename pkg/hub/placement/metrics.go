package placement

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/controller"
)

type metrics struct {
	evaluations, writes *prometheus.CounterVec
	gauges              []prometheus.Collector
}

func newMetrics(placements *controller.Cache[*clusterv1beta1.Placement]) *metrics {
	counter := func(name, label, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	withCondition := func(condition string) func() int {
		return func() (n int) {
			for _, p := range placements.All() {
				if meta.IsStatusConditionTrue(p.Status.Conditions, condition) {
					n++
				}
			}
			return n
		}
	}
	return &metrics{
		evaluations: counter("placement_evaluations_total", "result", "Reconciles of Placements, by result: unchanged, changed (decisions), "+
			"misconfigured, conflict or failed (both retried)."),
		writes: counter("placement_writes_total", "write", "Writes for Placements, by operation: create, update or delete (of a "+
			"PlacementDecision), status (of a Placement), or failed (any of them)."),
		gauges: []prometheus.Collector{
			gauge("placement_placements", "Placements on the hub.", placements.Len),
			gauge("placement_satisfied_placements", "Placements that are satisfied.", withCondition(clusterv1beta1.PlacementConditionSatisfied)),
			gauge("placement_misconfigured_placements", "Placements with an invalid spec.", withCondition(clusterv1beta1.PlacementConditionMisconfigured)),
		},
	}
}

// register registers the metrics with r, which may be nil.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range append([]prometheus.Collector{m.evaluations, m.writes}, m.gauges...) {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// countWrite counts a write by its operation, or as failed.
func (m *metrics) countWrite(operation string, err error) {
	if err != nil {
		operation = "failed"
	}
	m.writes.WithLabelValues(operation).Inc()
}
