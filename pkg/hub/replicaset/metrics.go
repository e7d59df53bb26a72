package replicaset

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/rollout"
)

// metrics of all sets. Safe for use by several goroutines.
type metrics struct {
	passes          prometheus.Histogram
	works, statuses *prometheus.CounterVec
	sets, clusters  *prometheus.GaugeVec
}

func newMetrics() *metrics {
	options := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "workwire", Subsystem: "hub", Name: "replicaset_" + name, Help: help}
	}
	return &metrics{
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "replicaset_pass_seconds",
			Help: "How long looks at one ManifestWorkReplicaSet took, with what was to be written.", Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		works: prometheus.NewCounterVec(prometheus.CounterOpts(options("works_written_total",
			"Writes of works of ManifestWorkReplicaSets, by action: create, update (to the template), label or delete; and by result: ok, gone, "+
				"outdated (the cache was behind) or failed (both tried again).")), []string{"action", "result"}),
		statuses: prometheus.NewCounterVec(prometheus.CounterOpts(options("status_writes_total",
			"Writes of the status of ManifestWorkReplicaSets, by result: written or failed (tried again).")), []string{"result"}),
		sets: prometheus.NewGaugeVec(prometheus.GaugeOpts(options("sets",
			"ManifestWorkReplicaSets, by rollout: complete, progressing, stopped (by failures) or faulty (nothing goes on until a person acts).")), []string{"rollout"}),
		clusters: prometheus.NewGaugeVec(prometheus.GaugeOpts(options("clusters",
			"Clusters that placements of ManifestWorkReplicaSets chose, by how they do with the template: waiting, begun, progressing, succeeded, "+
				"failed, timed_out; and away, which are counted there too.")), []string{"state"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	var faults []error
	for _, c := range []prometheus.Collector{m.passes, m.works, m.statuses, m.sets, m.clusters} {
		faults = append(faults, r.Register(c))
	}
	return errors.Join(faults...)
}

// standing is what the gauges say of one set; the zero value of none.
type standing struct {
	rollout  string
	clusters [len(states)]int
}

// states of clusters, in the order of standing.
var states = [...]string{"waiting", "begun", "progressing", "succeeded", "failed", "timed_out", "away"}

func standingOf(p *plan) standing {
	s := standing{rollout: "progressing"}
	complete := len(p.rollouts) > 0
	for _, r := range p.rollouts {
		d := r.decision
		failed, timedOut := len(d.Failed), len(d.TimedOut)
		// Those that time out are Progressing or Failed by their works.
		progressing := r.clusters[rollout.Progressing] + r.clusters[rollout.Failed] - failed - timedOut
		if !r.decided {
			progressing, failed = r.clusters[rollout.Progressing], r.clusters[rollout.Failed]
		}
		for i, n := range []int{
			r.clusters[rollout.ToApply] - len(d.Start), len(d.Start), progressing, r.clusters[rollout.Succeeded], failed, timedOut, r.away,
		} {
			s.clusters[i] += n
		}
		complete = complete && r.fault == nil && d.Done
	}
	switch {
	case p.fault != "" || faulty(p.rollouts):
		s.rollout = "faulty"
	case stopped(p.rollouts) != "":
		s.rollout = "stopped"
	case complete:
		s.rollout = "complete"
	}
	return s
}

func faulty(rollouts []progress) bool {
	for _, r := range rollouts {
		if r.fault != nil {
			return true
		}
	}
	return false
}

// stand has the gauges say after of a set in place of what they say.
func (m *metrics) stand(says *standing, after standing) {
	if says.rollout != "" {
		m.sets.WithLabelValues(says.rollout).Dec()
	}
	if after.rollout != "" {
		m.sets.WithLabelValues(after.rollout).Inc()
	}
	for i, state := range states {
		m.clusters.WithLabelValues(state).Add(float64(after.clusters[i] - says.clusters[i]))
	}
	*says = after
}
