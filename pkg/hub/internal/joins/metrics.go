package joins

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

type metrics struct {
	results *prometheus.CounterVec
	revoked prometheus.Gauge // certificates on the revocation list
	untaken prometheus.Gauge // 1 while the broker has not taken the list
}

func newMetrics() metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "hub", Name: name, Help: help})
	}
	return metrics{
		results: controller.NewCounter("join_requests_total",
			"Requests of clusters to join or to renew a certificate, by what became of them: Issued, Invalid, Dropped, or the reason of docs/join.md.", "result"),
		revoked: gauge("revoked_certificates", "Certificates of clusters that are revoked and have not expired."),
		untaken: gauge("revocation_list_untaken", "1 while the broker has not taken the revocation list, so that revoked clusters may still be connected; else 0."),
	}
}

// register registers the metrics; nil: nowhere.
func (m metrics) register(registerer prometheus.Registerer) error {
	if registerer == nil {
		return nil
	}
	return errors.Join(registerer.Register(m.results), registerer.Register(m.revoked), registerer.Register(m.untaken))
}
