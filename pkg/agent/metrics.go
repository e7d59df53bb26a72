package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// registerMetrics registers the metrics of the inbox and the outbox; docs/operations.md explains
// them.
func (a *Agent) registerMetrics() {
	factory := promauto.With(a.config.Registerer)
	gauge := func(name, help string, value func() float64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() uint64) {
		factory.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("workwire_agent_works", "Works held.", func() float64 { return float64(a.inbox.Len()) })
	gauge("workwire_agent_statuses_pending", "Works whose newest status the broker has not acknowledged.",
		func() float64 { return float64(a.outbox.Stats().Pending) })
	counter("workwire_agent_statuses_published_total", "Statuses that the broker acknowledged.", func() uint64 { return a.outbox.Stats().Published })
	counter("workwire_agent_statuses_coalesced_total", "Statuses that a later one replaced before they were published.",
		func() uint64 { return a.outbox.Stats().Coalesced })
	counter("workwire_agent_statuses_refused_total", "Publishes of a status that the broker refused.", func() uint64 { return a.outbox.Stats().Refused })
	counter("workwire_agent_statuses_shrunk_total", "Statuses that were reduced to fit the broker's packet size.",
		func() uint64 { return a.outbox.Stats().Shrunk })
}
