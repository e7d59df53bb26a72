package controller

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// NewCounter returns the counter workwire_hub_<name>.
func NewCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, labels)
}

// NewGauge returns the gauge workwire_hub_<name>.
func NewGauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help})
}

// NewGaugeFunc returns the gauge workwire_hub_<name>, which asks for its value.
func NewGaugeFunc[N int | float64](name, help string, value func() N) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help}, func() float64 { return float64(value()) })
}

// informerMetrics are the metrics of [Informers].
type informerMetrics struct {
	synced   prometheus.GaugeFunc
	readAnew *prometheus.CounterVec
	catchUp  prometheus.Gauge
}

func newInformerMetrics(synced func() bool) *informerMetrics {
	return &informerMetrics{
		synced: NewGaugeFunc("caches_synced", "1 while the caches hold all objects and are kept up to date, also in a standby; else 0.", func() int {
			if synced() {
				return 1
			}
			return 0
		}),
		readAnew: NewCounter("caches_read_anew_total",
			"Caches that a new leader read again because watch events were missing or contradicted the API server, by resource.", "resource"),
		catchUp: NewGauge("catch_up_seconds",
			"How long it took from the beginning of the term until the caches were known to be current; 0 before."),
	}
}

// Register registers the metrics of a controller with r, which may be nil.
func Register(r prometheus.Registerer, metrics ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, c := range metrics {
		errs = append(errs, r.Register(c))
	}
	return errors.Join(errs...)
}

// Result returns the label of a write in metrics: ok, exists, gone, conflict, canceled or failed.
func Result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case apierrors.IsAlreadyExists(err):
		return "exists"
	case apierrors.IsNotFound(err):
		return "gone"
	case apierrors.IsConflict(err):
		return "conflict"
	case errors.Is(err, context.Canceled):
		return "canceled"
	default:
		return "failed"
	}
}
