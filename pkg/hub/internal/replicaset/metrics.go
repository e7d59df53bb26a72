package replicaset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// metrics of all sets. It is safe for concurrent use.
type metrics struct {
	reconciles      prometheus.Histogram
	works, statuses *prometheus.CounterVec
	sets, clusters  *prometheus.GaugeVec
}

func newMetrics() *metrics {
	gauge := func(name, help, label string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "replicaset_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		reconciles: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "replicaset_reconcile_seconds",
			Help: "Duration of the reconciles of one ManifestWorkReplicaSet, including its writes.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		works: controller.NewCounter("replicaset_works_written_total",
			"Writes of works of ManifestWorkReplicaSets, by action: create, update (to the template), label or delete; and by result: ok, gone, "+
				"outdated (the cache was behind) or failed (both retried).", "action", "result"),
		statuses: controller.NewCounter("replicaset_status_writes_total",
			"Writes of the status of ManifestWorkReplicaSets, by result: written or failed (retried).", "result"),
		sets: gauge("sets", "ManifestWorkReplicaSets, by rollout: complete, progressing, paused, stopped (by failures) or invalid (until the set or a "+
			"placement is changed).", "rollout"),
		clusters: gauge("clusters", "Clusters that placements of ManifestWorkReplicaSets selected, by state with the template: waiting, started, "+
			"progressing, succeeded, failed, timed_out; and away, which are counted in one of the other states too.", "state"),
	}
	for _, rollout := range []string{"complete", "progressing", "stopped", "invalid"} {
		m.sets.WithLabelValues(rollout)
	}
	for _, state := range states {
		m.clusters.WithLabelValues(state)
	}
	return m
}

// gaugeValues is the share of one set in the gauges.
type gaugeValues struct {
	rollout  string
	clusters [len(states)]int
}

// states of clusters, in the order of gaugeValues.clusters.
var states = [...]string{"waiting", "started", "progressing", "succeeded", "failed", "timed_out", "away"}

// gaugesOf returns the share of the set of a plan.
func gaugesOf(p *plan) gaugeValues {
	g := gaugeValues{rollout: "progressing"}
	complete, invalid := len(p.rollouts) > 0, p.invalid != ""
	for _, r := range p.rollouts {
		d := r.decision
		failed, timedOut := len(d.Failed), len(d.TimedOut)
		// Clusters that time out have the status Progressing or Failed.
		progressing := r.clusters[rollout.Progressing] + r.clusters[rollout.Failed] - failed - timedOut
		if !r.decided {
			progressing, failed = r.clusters[rollout.Progressing], r.clusters[rollout.Failed]
		}
		for i, n := range []int{
			r.clusters[rollout.ToApply] - len(d.Start), len(d.Start), progressing, r.clusters[rollout.Succeeded], failed, timedOut, r.away,
		} {
			g.clusters[i] += n
		}
		complete = complete && r.err == nil && d.Done
		invalid = invalid || r.err != nil
	}
	switch {
	case invalid:
		g.rollout = "invalid"
	case p.paused():
		g.rollout = "paused"
	case stoppedMessage(p.rollouts) != "", p.revisions.Served != 0:
		g.rollout = "stopped"
	case complete:
		g.rollout = "complete"
	}
	return g
}

// setGauges replaces the share of a set, counted, by after.
func (m *metrics) setGauges(counted *gaugeValues, after gaugeValues) {
	if counted.rollout != "" {
		m.sets.WithLabelValues(counted.rollout).Dec()
	}
	if after.rollout != "" {
		m.sets.WithLabelValues(after.rollout).Inc()
	}
	for i, state := range states {
		m.clusters.WithLabelValues(state).Add(float64(after.clusters[i] - counted.clusters[i]))
	}
	*counted = after
}
