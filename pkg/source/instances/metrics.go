package instances

import "github.com/prometheus/client_golang/prometheus"

// Metrics returns the metrics of w, which are not registered.
func (w *Watcher) Metrics() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "workwire", Subsystem: "source", Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("other_instances", "Other programs that publish under the same source id.", func() float64 { return float64(w.Others()) }),
		gauge("instances_watched", "1 while other programs under the same source id would be noticed, else 0: there is no connection, or the broker does not let "+
			"the source read its topic of instances.", func() float64 {
			if w.Watching() {
				return 1
			}
			return 0
		}),
	}
}
