package placement

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

type metrics struct {
	evaluations, writes *prometheus.CounterVec
	gauges              []prometheus.Collector
}

func newMetrics(placements *controller.Cache[*clusterv1beta1.Placement]) *metrics {
	with := func(condition string, status metav1.ConditionStatus) func() int {
		return func() int {
			return len(slices.DeleteFunc(placements.All(), func(p *clusterv1beta1.Placement) bool {
				return !meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, condition, status)
			}))
		}
	}
	return &metrics{
		evaluations: controller.NewCounter("placement_evaluations_total", "Reconciles of Placements, by result: unchanged, changed (decisions), "+
			"kept (older than cluster sets), misconfigured, conflict or failed (both retried).", "result"),
		writes: controller.NewCounter("placement_writes_total", "Writes for Placements, by operation: create, update or delete (of a "+
			"PlacementDecision), status (of a Placement), or failed (any of them).", "write"),
		gauges: []prometheus.Collector{
			controller.NewGaugeFunc("placement_placements", "Placements on the hub.", placements.Len),
			controller.NewGaugeFunc("placement_satisfied_placements", "Placements that are satisfied.", with(clusterv1beta1.PlacementConditionSatisfied, metav1.ConditionTrue)),
			controller.NewGaugeFunc("placement_unbound_placements", "Placements without a bound ManagedClusterSet that has clusters.", with(clusterv1beta1.PlacementConditionBound, metav1.ConditionFalse)),
			controller.NewGaugeFunc("placement_misconfigured_placements", "Placements with an invalid spec.", with(clusterv1beta1.PlacementConditionMisconfigured, metav1.ConditionTrue)),
		},
	}
}

// countWrite counts a write by its operation, or as failed.
func (m *metrics) countWrite(operation string, err error) {
	if err != nil {
		operation = "failed"
	}
	m.writes.WithLabelValues(operation).Inc()
}
