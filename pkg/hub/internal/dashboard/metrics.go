package dashboard

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the dashboard.
type metrics struct {
	streams prometheus.Gauge
	reviews *prometheus.CounterVec
	pages   *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	name := func(name string) string { return prometheus.BuildFQName("workwire", "hub", name) }
	m := &metrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: name("dashboard_streams"), Help: "Pages of the dashboard that follow changes.",
		}),
		reviews: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("dashboard_reviews_total"), Help: "Questions of the dashboard to the API server, by kind (token, access) and result (ok, error).",
		}, []string{"kind", "result"}),
		pages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name("dashboard_page_seconds"), Help: "Time in which a page of the dashboard was made, by page.",
			Buckets: []float64{0.005, 0.02, 0.1, 0.5, 2, 10},
		}, []string{"page"}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.streams, m.reviews, m.pages} {
		if err := registerer.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// review counts a question to the API server.
func (m *metrics) review(kind string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	m.reviews.WithLabelValues(kind, result).Inc()
}
