package dashboard

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

// metrics are those of the dashboard.
type metrics struct {
	streams prometheus.Gauge
	reviews *prometheus.CounterVec
	pages   *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		streams: controller.NewGauge("dashboard_streams", "Pages of the dashboard that follow changes."),
		reviews: controller.NewCounter("dashboard_reviews_total",
			"Questions of the dashboard to the API server, by kind (token, access) and result (ok, error).", "kind", "result"),
		pages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "dashboard_page_seconds", Help: "Time in which a page of the dashboard was made, by page.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 2, 10},
		}, []string{"page"}),
	}
	return m, controller.Register(registerer, m.streams, m.reviews, m.pages)
}

// review counts a question to the API server.
func (m *metrics) review(kind string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.reviews.WithLabelValues(kind, result).Inc()
}
