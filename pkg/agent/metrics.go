package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the agent's own figures; docs/operations.md explains them.
type metrics struct {
	received  *prometheus.CounterVec
	resyncs   prometheus.Counter
	passes    *prometheus.HistogramVec
	manifests *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer, a *Agent) *metrics {
	factory := promauto.With(registerer)
	gauge := func(name, help string, value func() float64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() uint64) {
		factory.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("workwire_agent_works", "Works held.", func() float64 { return float64(a.inbox.Len()) })
	gauge("workwire_agent_queue_length", "Works that wait for a worker.", func() float64 { return float64(a.queue.Len()) })
	gauge("workwire_agent_statuses_pending", "Works whose newest status the broker has not taken.",
		func() float64 { return float64(a.outbox.Stats().Pending) })
	counter("workwire_agent_statuses_published_total", "Statuses that the broker took.", func() uint64 { return a.outbox.Stats().Published })
	counter("workwire_agent_statuses_coalesced_total", "Statuses that a later one replaced before they were sent.",
		func() uint64 { return a.outbox.Stats().Coalesced })
	counter("workwire_agent_statuses_refused_total", "Publishes of a status that the broker refused.", func() uint64 { return a.outbox.Stats().Refused })
	counter("workwire_agent_statuses_shrunk_total", "Statuses that were cut down to fit the broker's packet size.",
		func() uint64 { return a.outbox.Stats().Shrunk })
	return &metrics{
		received: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_specs_received_total", Help: "Messages received, by what they meant for what is held.",
		}, []string{"verdict"}),
		resyncs: factory.NewCounter(prometheus.CounterOpts{
			Name: "workwire_agent_spec_resyncs_total", Help: "Requests for specs sent.",
		}),
		passes: factory.NewHistogramVec(prometheus.HistogramOpts{
			Name: "workwire_agent_pass_duration_seconds", Help: "Time to bring one work up to date, by result.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14),
		}, []string{"result"}),
		manifests: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_manifests_total", Help: "What was done for manifests, by action.",
		}, []string{"action"}),
	}
}
