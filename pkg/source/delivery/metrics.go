package delivery

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics of a Link.
type metrics struct {
	published           *prometheus.CounterVec
	republished         prometheus.Counter
	received            *prometheus.CounterVec
	resyncAnswers       *prometheus.CounterVec
	statusResyncs       prometheus.Counter
	statusWriteFailures prometheus.Counter
}

// newMetrics makes them and registers them with r unless it is nil.
func newMetrics(r prometheus.Registerer, l *Engine) (*metrics, error) {
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "workwire", Subsystem: "source", Name: name, Help: help}
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "source", Name: name, Help: help},
			func() float64 { return float64(value()) })
	}
	ofLedger := func(value func(*deliveryState) int) func() int {
		return func() int {
			l.mu.Lock()
			defer l.mu.Unlock()
			return value(l.state)
		}
	}
	m := &metrics{
		published: prometheus.NewCounterVec(counter("published_total",
			"Specs and deletions published, by action and result: ok, failed (tried again) or refused (by the broker, not tried again)."),
			[]string{"action", "result"}),
		republished: prometheus.NewCounter(counter("repeated_total",
			"Specs published again because their cluster did not confirm them.")),
		received: prometheus.NewCounterVec(counter("received_total",
			"Messages received, by kind and by what became of them."), []string{"message", "verdict"}),
		resyncAnswers: prometheus.NewCounterVec(counter("resync_answers_total",
			"Works that spec resync requests were answered by: sent, or gone (a deletion of what the source does not have)."), []string{"answer"}),
		statusResyncs: prometheus.NewCounter(counter("status_resync_requests_total",
			"Status resync requests published.")),
		statusWriteFailures: prometheus.NewCounter(counter("intake_failures_total",
			"Statuses that could not be taken in at once; they are tried again.")),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.published, m.republished, m.received, m.resyncAnswers, m.statusResyncs, m.statusWriteFailures,
		gauge("connected", "1 while there is a connection to the broker.",
			ofLedger(func(l *deliveryState) int { return min(int(l.connected), 1) })),
		gauge("works_pending", "Works that wait to be published or are being published.",
			ofLedger(func(l *deliveryState) int { return l.pending })),
		gauge("works_unconfirmed", "Works published that their cluster has not confirmed yet.",
			ofLedger(func(l *deliveryState) int { return len(l.due.slots) + l.awaitingContact })),
		gauge("intakes_pending", "Works whose status waits to be taken in.", l.statusQueue.len),
	} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
