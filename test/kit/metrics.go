package kit

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the samples of metrics. A histogram has samples with the suffixes _bucket, _sum and
// _count, as in the text of /metrics.
type Metrics model.Vector

// Gather returns the metrics of g.
func Gather(t testing.TB, g prometheus.Gatherer) Metrics {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	metrics, err := samples(families)
	if err != nil {
		t.Fatalf("gather metrics: %v", err)
	}
	return metrics
}

// ParseMetrics returns the metrics in a text of /metrics.
func ParseMetrics(text io.Reader) (Metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	list := make([]*dto.MetricFamily, 0, len(families))
	for _, family := range families {
		list = append(list, family)
	}
	return samples(list)
}

func samples(families []*dto.MetricFamily) (Metrics, error) {
	vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, families...)
	return Metrics(vector), err
}

// Metric returns the sum of the samples of a metric that have all labels, each given as
// "name=value". It fails the test when g has no metric of this name; to read one that may be
// missing as 0, use [Metrics.Sum].
func Metric(t testing.TB, g prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	metrics := Gather(t, g).Select(name)
	if len(metrics) == 0 {
		t.Fatalf("there is no metric %s", name)
	}
	return metrics.Sum(name, labels...)
}

// Select returns the samples of a metric that have all labels, each given as "name=value".
func (m Metrics) Select(name string, labels ...string) Metrics {
	var selected Metrics
	for _, sample := range m {
		if string(sample.Metric[model.MetricNameLabel]) == name && !slices.ContainsFunc(labels, func(label string) bool {
			key, value, _ := strings.Cut(label, "=")
			return string(sample.Metric[model.LabelName(key)]) != value
		}) {
			selected = append(selected, sample)
		}
	}
	return selected
}

// Sum returns the sum of the samples that [Metrics.Select] returns, 0 without any.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	for _, sample := range m.Select(name, labels...) {
		sum += float64(sample.Value)
	}
	return sum
}

// ByLabel returns the values of a metric by one of its labels, without zeros.
func (m Metrics) ByLabel(name, label string) map[string]float64 {
	values := map[string]float64{}
	for _, sample := range m.Select(name) {
		if sample.Value != 0 {
			values[string(sample.Metric[model.LabelName(label)])] += float64(sample.Value)
		}
	}
	return values
}
