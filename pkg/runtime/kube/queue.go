package kube

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

type queueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

// NewQueueMetrics creates the metrics workwire_queue_* of work queues, labelled with the name of
// the queue, for the configuration of a queue; client-go's own provider is global. It registers
// them with r, unless r is nil, and returns an error if r has them already.
func NewQueueMetrics(r prometheus.Registerer) (workqueue.MetricsProvider, error) {
	name := []string{"queue"}
	gauge := func(metric, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "queue", Name: metric, Help: help}, name)
	}
	counter := func(metric, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "queue", Name: metric, Help: help}, name)
	}
	histogram := func(metric, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "workwire", Subsystem: "queue", Name: metric, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}, name)
	}
	m := &queueMetrics{
		depth:      gauge("depth", "Current number of items that wait."),
		unfinished: gauge("unfinished_work_seconds", "Sum of the time in seconds that the items in progress have taken so far."),
		longest:    gauge("longest_running_seconds", "Time in seconds that the longest-running item in progress has taken so far."),
		adds:       counter("adds_total", "Number of items added, without items that were waiting already."),
		retries:    counter("retries_total", "Number of items requeued after a failure."),
		latency:    histogram("wait_seconds", "Time in seconds that items waited."),
		duration:   histogram("work_seconds", "Time in seconds that processing items took."),
	}
	if r == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.depth, m.unfinished, m.longest, m.adds, m.retries, m.latency, m.duration} {
		errs = append(errs, r.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register the metrics of queues: %w", err)
	}
	return m, nil
}

func (m *queueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}
func (m *queueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}
func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}
func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}
func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}
func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}
func (m *queueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
