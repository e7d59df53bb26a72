package placement

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

type metrics struct {
	looks, writes *prometheus.CounterVec
	placements    []prometheus.Collector
}

func newMetrics(placements cache.Store) *metrics {
	counter := func(name, label, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		looks: counter("placement_evaluations_total", "result", "Looks at a Placement, by result: unchanged, changed (decisions), "+
			"misconfigured, conflict or failed (both tried again)."),
		writes: counter("placement_writes_total", "write", "Writes for Placements, by what is written: a PlacementDecision "+
			"(create, update or delete), the status of a Placement (status), or failed."),
	}
	for state, condition := range map[string]string{
		"satisfied": clusterv1beta1.PlacementConditionSatisfied, "misconfigured": clusterv1beta1.PlacementConditionMisconfigured,
	} {
		m.placements = append(m.placements, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "placement_" + state + "_placements", Help: "Placements that are " + state + ".",
		}, func() float64 {
			n := 0.0
			for _, object := range placements.List() {
				if p, ok := object.(*clusterv1beta1.Placement); ok && meta.IsStatusConditionTrue(p.Status.Conditions, condition) {
					n++
				}
			}
			return n
		}))
	}
	m.placements = append(m.placements, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "workwire", Subsystem: "hub", Name: "placement_placements", Help: "Placements on the hub.",
	}, func() float64 { return float64(len(placements.ListKeys())) }))
	return m
}

// register registers all with r, which may be nil.
func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	var faults []error
	for _, c := range append([]prometheus.Collector{m.looks, m.writes}, m.placements...) {
		faults = append(faults, r.Register(c))
	}
	return errors.Join(faults...)
}

func (m *metrics) wrote(what string, err error) {
	if err != nil {
		what = "failed"
	}
	m.writes.WithLabelValues(what).Inc()
}
