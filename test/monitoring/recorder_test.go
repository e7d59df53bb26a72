package monitoring

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/workwire/workwire/pkg/runtime/serve"
)

// metric is what a registration says about a metric.
type metric struct{ name, kind, labels, help string }

// recorder is a registry that remembers what was registered: a metric with labels shows nothing
// until it has a value.
type recorder struct {
	*prometheus.Registry

	mu      sync.Mutex
	metrics map[string]metric
}

func newRecorder() *recorder {
	return &recorder{Registry: serve.NewRegistry(), metrics: map[string]metric{}}
}

// Register implements [prometheus.Registerer].
func (r *recorder) Register(c prometheus.Collector) error {
	r.describe(c)
	return r.Registry.Register(c)
}

// MustRegister implements [prometheus.Registerer].
func (r *recorder) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		r.describe(c)
	}
	r.Registry.MustRegister(collectors...)
}

func (r *recorder) describe(c prometheus.Collector) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range descriptions {
		m := parseDescription(d.String())
		m.kind = kindOf(c, m.name)
		r.metrics[m.name] = m
	}
}

// recorded returns the metrics of the project that are registered.
func (r *recorder) recorded() map[string]metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.metrics)
}

var description = regexp.MustCompile(`fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"),(?: unit: "[^"]*",)? constLabels: \{[^}]*\}, variableLabels: \{([^}]*)\}`)

// parseDescription reads the text of a [prometheus.Desc], which has no other way to its fields.
func parseDescription(text string) metric {
	parts := description.FindStringSubmatch(text)
	if parts == nil {
		panic("not a description: " + text)
	}
	var m metric
	for i, to := range []*string{&m.name, &m.help} {
		if _, err := fmt.Sscanf(parts[i+1], "%q", to); err != nil {
			panic(err)
		}
	}
	m.labels = strings.ReplaceAll(parts[3], ",", ", ")
	return m
}

// kindOf returns the type of a metric: that of its collector, or what its name promises if the
// collector has several.
func kindOf(c prometheus.Collector, name string) string {
	switch c.(type) {
	case *prometheus.HistogramVec, prometheus.Histogram:
		return "histogram"
	}
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}
