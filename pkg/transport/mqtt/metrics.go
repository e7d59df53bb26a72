package mqtt

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/transport"
)

// metrics are the metrics of a Transport.
type metrics struct {
	connected                        prometheus.Gauge
	connections                      prometheus.Counter
	failures                         *prometheus.CounterVec
	published                        prometheus.Counter
	publishedBytes                   prometheus.Counter
	publishErrors                    *prometheus.CounterVec
	publishSeconds                   prometheus.Histogram
	received                         prometheus.Counter
	receivedBytes                    prometheus.Counter
	malformed                        prometheus.Counter
	certificateStart, certificateEnd prometheus.Gauge
	retained                         prometheus.Counter
}

// Values of the label reason.
const (
	reasonNotConnected  = "not_connected"
	reasonTooLarge      = "too_large"
	reasonNotAuthorized = "not_authorized"
	reasonCancelled     = "cancelled"
	reasonOther         = "other"

	failureConnect   = "connect"
	failureSubscribe = "subscribe"
	failureLost      = "lost"
)

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	const prefix = "workwire_transport_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	m := &metrics{
		connected:   prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "connected", Help: "1 while connected to the broker with all subscriptions granted, else 0."}),
		connections: counter("connections_total", "Connections that were established, with all subscriptions granted."),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "failures_total",
			Help: "Attempts to connect or subscribe that failed, and connections lost."}, []string{"kind"}),
		published:      counter("published_events_total", "Events that the broker has acknowledged."),
		publishedBytes: counter("published_bytes_total", "Size of the packets of these events."),
		publishErrors: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "publish_errors_total",
			Help: "Events that could not be published, by reason."}, []string{"reason"}),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + "publish_duration_seconds",
			Help: "Time from Publish to the broker's acknowledgement.", Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)}),
		received:      counter("received_events_total", "Messages received, duplicates included."),
		receivedBytes: counter("received_bytes_total", "Size of the packets of these messages."),
		malformed:     counter("received_malformed_total", "Messages received that are not CloudEvents."),
		certificateStart: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "certificate_start_timestamp_seconds",
			Help: "From when that certificate is valid, in seconds since 1970; 0 without one."}),
		certificateEnd: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "certificate_expiry_timestamp_seconds",
			Help: "When the client certificate of the last connection expires, in seconds since 1970; 0 without one."}),
		retained: counter("received_retained_total", "Retained messages received and ignored."),
	}
	for _, kind := range []string{failureConnect, failureSubscribe, failureLost} {
		m.failures.WithLabelValues(kind)
	}
	for _, reason := range []string{reasonNotConnected, reasonTooLarge, reasonNotAuthorized, reasonCancelled, reasonOther} {
		m.publishErrors.WithLabelValues(reason)
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.connected, m.connections, m.failures, m.published, m.publishedBytes,
		m.publishErrors, m.publishSeconds, m.received, m.receivedBytes, m.malformed, m.certificateStart, m.certificateEnd, m.retained} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("mqtt transport: register metrics: %w; give each transport its own Registerer, see prometheus.WrapRegistererWith", err)
		}
	}
	return m, nil
}

func (m *metrics) publish(took time.Duration, size int, err error) {
	if err != nil {
		m.publishErrors.WithLabelValues(publishReason(err)).Inc()
		return
	}
	m.published.Inc()
	m.publishedBytes.Add(float64(size))
	m.publishSeconds.Observe(took.Seconds())
}

func publishReason(err error) string {
	var tooLarge *transport.TooLargeError
	switch {
	case errors.As(err, &tooLarge):
		return reasonTooLarge
	case errors.Is(err, transport.ErrNotAuthorized):
		return reasonNotAuthorized
	case errors.Is(err, transport.ErrNotConnected):
		return reasonNotConnected
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return reasonCancelled
	default:
		return reasonOther
	}
}
