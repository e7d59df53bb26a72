package delivery

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
)

// metrics are the metrics of an Engine.
type metrics struct {
	published           *prometheus.CounterVec
	republished         prometheus.Counter
	specDeltas          prometheus.Counter
	received            *prometheus.CounterVec
	resyncAnswers       *prometheus.CounterVec
	statusResyncs       prometheus.Counter
	statusWriteFailures prometheus.Counter
	digests             *prometheus.CounterVec
	questionsPaced      prometheus.Counter
	untrusted           *prometheus.CounterVec
}

// newMetrics returns the metrics of e, registered with r unless it is nil.
func newMetrics(r prometheus.Registerer, e *Engine) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "workwire", Subsystem: "source", Name: name, Help: help}
	}
	m := &metrics{
		published: prometheus.NewCounterVec(counter("published_total",
			"Specs and deletions published, by action and result: ok, failed (retried) or refused (by the broker, not retried)."),
			[]string{"action", "result"}),
		republished: prometheus.NewCounter(counter("republished_total",
			"Specs published again because their cluster did not confirm them.")),
		specDeltas: prometheus.NewCounter(counter("spec_deltas_total",
			"Specs that were sent as the difference from the one before.")),
		received: prometheus.NewCounterVec(counter("received_total",
			"Messages received, by kind and verdict."), []string{"message", "verdict"}),
		resyncAnswers: prometheus.NewCounterVec(counter("resync_answers_total",
			"Works in the answers to spec resync requests: sent, authoritative (the agent held other content or a higher generation), "+
				"gone (a deletion of a work that the source does not have), held (such a work, not answered) or postponed (too many of them wait)."), []string{"answer"}),
		statusResyncs: prometheus.NewCounter(counter("status_resync_requests_total",
			"Status resync requests published.")),
		statusWriteFailures: prometheus.NewCounter(counter("status_write_failures_total",
			"Status updates that failed and are retried.")),
		digests: prometheus.NewCounterVec(counter("digests_total",
			"Digests compared, by result: equal, different, or paused (the cluster is not accepted, not compared)."), []string{"result"}),
		questionsPaced: prometheus.NewCounter(counter("questions_paced_total",
			"Times that a resync request or digest had to wait because its cluster asks too often.")),
		untrusted: prometheus.NewCounterVec(counter("untrusted_statuses_total",
			"Statuses that were refused because of their signature, by reason."), []string{"reason"}),
	}
	m.setZeros()
	if r == nil {
		return m, nil
	}
	collectors := append(e.instances.Metrics(), e.core.quotas,
		m.published, m.republished, m.specDeltas, m.received, m.resyncAnswers, m.statusResyncs, m.statusWriteFailures, m.digests, m.questionsPaced, m.untrusted)
	for _, c := range append(collectors, gauges(e)...) {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// gauges returns the metrics of what e holds now.
func gauges(e *Engine) []prometheus.Collector {
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "source", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	ofState := func(value func(*core) int) func() int {
		return func() int {
			e.mu.Lock()
			defer e.mu.Unlock()
			return value(e.core)
		}
	}
	return []prometheus.Collector{
		gauge("connected", "1 while connected to the broker, else 0.",
			ofState(func(d *core) int { return min(int(d.connection), 1) })),
		gauge("works_pending", "Works that are queued or in flight.",
			ofState(func(d *core) int { return d.pending() })),
		gauge("works_unconfirmed", "Works that are published and not confirmed by their cluster.",
			ofState(func(d *core) int { return d.unconfirmed() })),
		gauge("clusters_diverged", "Clusters whose works have differed from those of the source for more than a minute.",
			ofState(func(d *core) int {
				return d.countClusters(func(c *clusterRecord) bool { return c.divergence.isReported() })
			})),
		gauge("clusters_untrusted", "Clusters of which statuses were refused because of their signature within the last 15 minutes.",
			ofState(func(d *core) int {
				return d.countClusters(func(c *clusterRecord) bool { return !c.distrust.Since.IsZero() })
			})),
		gauge("statuses_pending", "Works with a status update that is queued or in progress.",
			ofState(func(d *core) int { return len(d.stores.byKey) })),
	}
}

// setZeros makes the series of refusals: increase() counts from the first value that was scraped, so the
// first refusal needs a zero.
func (m *metrics) setZeros() {
	for _, action := range []wire.Action{wire.Create, wire.Update, wire.Delete} {
		for _, result := range []string{"ok", "failed", "refused"} {
			m.published.WithLabelValues(string(action), result)
		}
	}
	for _, reason := range []signing.Reason{
		signing.Unsigned, signing.Malformed, signing.UnknownKey, signing.WrongCluster, signing.Invalid, signing.Expired, signing.Future,
		signing.Replayed, signing.BeforeStart} {
		m.untrusted.WithLabelValues(string(reason))
	}
}

// observe counts an event.
func (m *metrics) observe(event Event) {
	switch event := event.(type) {
	case Received:
		m.received.WithLabelValues(event.Kind, string(event.verdict)).Inc()
		if event.verdict == untrusted && event.Status != nil {
			m.untrusted.WithLabelValues(string(event.reason)).Inc()
		}
	case questionPaced:
		m.questionsPaced.Inc()
	case Publication:
		if event.Ended.IsZero() {
			return
		}
		m.published.WithLabelValues(string(event.Action), event.result()).Inc()
		if event.Err == nil && event.repeated {
			m.republished.Inc()
		}
	}
}
