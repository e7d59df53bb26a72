package placement

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

type metrics struct {
	evaluations, writes *prometheus.CounterVec
	gauges              []prometheus.Collector
}

func newMetrics(placements *controller.Cache[*clusterv1beta1.Placement]) *metrics {
	withCondition := func(condition string) func() int {
		return func() int {
			return len(slices.DeleteFunc(placements.All(), func(p *clusterv1beta1.Placement) bool {
				return !meta.IsStatusConditionTrue(p.Status.Conditions, condition)
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
			controller.NewGaugeFunc("placement_satisfied_placements", "Placements that are satisfied.", withCondition(clusterv1beta1.PlacementConditionSatisfied)),
			controller.NewGaugeFunc("placement_unbound_placements", "Placements without a bound ManagedClusterSet that has clusters.", func() int {
				return len(slices.DeleteFunc(placements.All(), func(p *clusterv1beta1.Placement) bool {
					return !meta.IsStatusConditionFalse(p.Status.Conditions, clusterv1beta1.PlacementConditionBound)
				}))
			}),
			controller.NewGaugeFunc("placement_misconfigured_placements", "Placements with an invalid spec.", withCondition(clusterv1beta1.PlacementConditionMisconfigured)),
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
