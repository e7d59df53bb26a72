package joins

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

type metrics struct {
	results  *prometheus.CounterVec
	revoked  prometheus.Gauge // certificates on the revocation list
	untaken  prometheus.Gauge // 1 while the broker has not taken the list
	outdated prometheus.Gauge // 1 while the broker has a newer one
}

func newMetrics() metrics {
	return metrics{
		results: controller.NewCounter("join_requests_total",
			"Requests of clusters to join or to renew a certificate, by what became of them: Issued, Invalid, Dropped, or the reason of docs/join.md.", "result"),
		revoked:  controller.NewGauge("revoked_certificates", "Certificates of clusters that are revoked and have not expired."),
		untaken:  controller.NewGauge("revocation_list_untaken", "1 while the broker has not taken the revocation list, so that revoked clusters may still be connected; else 0."),
		outdated: controller.NewGauge("revocation_list_outdated", "1 while the broker has a newer revocation list than the hub, whose API was restored, so that no cluster gets a certificate; else 0."),
	}
}
