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
