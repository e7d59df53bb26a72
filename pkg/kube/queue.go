package kube

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/util/workqueue"
)

// QueueMetrics gives the work queues of a process their metrics
// workwire_queue_*, each labelled with the queue's name. It is a
// [workqueue.MetricsProvider] for a queue's configuration, in place of
// client-go's, which is one for the whole process.
type QueueMetrics struct {
	depth, unfinished, longest *prometheus.GaugeVec
	adds, retries              *prometheus.CounterVec
	latency, duration          *prometheus.HistogramVec
}

var _ workqueue.MetricsProvider = (*QueueMetrics)(nil)

// NewQueueMetrics makes the metrics and registers them with r; nil registers
// them nowhere. It fails when r has them already.
func NewQueueMetrics(r prometheus.Registerer) (*QueueMetrics, error) {
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
	m := &QueueMetrics{
		depth:      gauge("depth", "Items that wait."),
		unfinished: gauge("unfinished_work_seconds", "How long the items under way have been under way, summed up."),
		longest:    gauge("longest_running_seconds", "How long the item that is under way for longest has been."),
		adds:       counter("adds_total", "Items added; those that were waiting already are not counted."),
		retries:    counter("retries_total", "Items added again after a failure."),
		latency:    histogram("wait_seconds", "How long items waited."),
		duration:   histogram("work_seconds", "How long items took."),
	}
	if r == nil {
		return m, nil
	}
	var faults []error
	for _, c := range []prometheus.Collector{m.depth, m.unfinished, m.longest, m.adds, m.retries, m.latency, m.duration} {
		faults = append(faults, r.Register(c))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("register the metrics of queues: %w", err)
	}
	return m, nil
}

// NewDepthMetric is called by the queue name.
func (m *QueueMetrics) NewDepthMetric(name string) workqueue.GaugeMetric {
	return m.depth.WithLabelValues(name)
}

// NewAddsMetric is called by the queue name.
func (m *QueueMetrics) NewAddsMetric(name string) workqueue.CounterMetric {
	return m.adds.WithLabelValues(name)
}

// NewLatencyMetric is called by the queue name.
func (m *QueueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return m.latency.WithLabelValues(name)
}

// NewWorkDurationMetric is called by the queue name.
func (m *QueueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return m.duration.WithLabelValues(name)
}

// NewUnfinishedWorkSecondsMetric is called by the queue name.
func (m *QueueMetrics) NewUnfinishedWorkSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.unfinished.WithLabelValues(name)
}

// NewLongestRunningProcessorSecondsMetric is called by the queue name.
func (m *QueueMetrics) NewLongestRunningProcessorSecondsMetric(name string) workqueue.SettableGaugeMetric {
	return m.longest.WithLabelValues(name)
}

// NewRetriesMetric is called by the queue name.
func (m *QueueMetrics) NewRetriesMetric(name string) workqueue.CounterMetric {
	return m.retries.WithLabelValues(name)
}
