package agent

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/wire"
)

// registerMetrics registers the metrics of the inbox, the outbox and the quotas; docs/operations.md
// explains them.
func registerMetrics(
	registerer prometheus.Registerer, in *inbox.Inbox, out *outbox.Outbox, quotas *quota.Quotas[wire.SourceID], state *statestore.Store,
) {
	if registerer != nil {
		registerer.MustRegister(quotas)
	}
	factory := promauto.With(registerer)
	gauge := func(name, help string, value func() float64) {
		factory.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() uint64) {
		factory.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("workwire_agent_works", "Works held.", func() float64 { return float64(in.Len()) })
	gauge("workwire_agent_works_deletion_held", "Works that their source does not know and that are kept until somebody decides.",
		func() float64 { return float64(in.Held()) })
	gauge("workwire_agent_state_in_memory_only", "1 while the state directory cannot be written, else 0.", func() float64 {
		if state.Err() != nil {
			return 1
		}
		return 0
	})
	gauge("workwire_agent_statuses_pending", "Works whose newest status the broker has not acknowledged.",
		func() float64 { return float64(out.Stats().Pending) })
	counter("workwire_agent_statuses_published_total", "Statuses that the broker acknowledged.", func() uint64 { return out.Stats().Published })
	counter("workwire_agent_status_deltas_total", "Statuses that were published as the difference from the one before.",
		func() uint64 { return out.Stats().Deltas })
	counter("workwire_agent_status_bytes_total", "Bytes of the statuses that the broker acknowledged: data and extensions.",
		func() uint64 { return out.Stats().Bytes })
	gauge("workwire_agent_statuses_waiting", "Works whose new feedback values wait because of --max-uplink.",
		func() float64 { return float64(out.Stats().Waiting) })
	counter("workwire_agent_statuses_coalesced_total", "Statuses that a later one replaced before they were published.",
		func() uint64 { return out.Stats().Coalesced })
	counter("workwire_agent_statuses_refused_total", "Publishes of a status that the broker refused.", func() uint64 { return out.Stats().Refused })
	counter("workwire_agent_deletions_unanswered_total", "Deletions of works that the agent does not hold and that it has not answered, because too many answers to their source wait.",
		func() uint64 { return out.Stats().Dropped })
	counter("workwire_agent_statuses_shrunk_total", "Statuses that were reduced to fit the broker's packet size.",
		func() uint64 { return out.Stats().Shrunk })
}
