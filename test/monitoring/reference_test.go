package monitoring

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/workwire/workwire/test/kit"
)

var update = flag.Bool("update", false, "write docs/metrics.md")

const reference = "../../docs/metrics.md"

// TestReference: docs/metrics.md lists every metric that the programs register, as the code
// describes it.
func TestReference(t *testing.T) {
	t.Parallel()
	w := start(t)
	var page strings.Builder
	page.WriteString(`# Metrics

Every metric of hub, agent and broker, with its type and labels. The page is made from the code:
` + "`go test ./test/monitoring -run TestReference -update`" + ` writes it. [operations.md](operations.md) says where metrics are
served and what to watch, [monitoring.md](monitoring.md) has alerts and a dashboard. All programs also have the metrics ` + "`go_*` and `process_*`" + `.
`)
	hub, agent, broker := w.hub.recorded(), w.agent.recorded(), scrape(t, w.Broker.Broker.HTTPAddr())
	shared := map[string]metric{"workwire_build_info": broker["workwire_build_info"]}
	for name := range hub {
		if _, ok := agent[name]; ok {
			shared[name] = hub[name]
		}
	}
	for name := range shared {
		for _, of := range []map[string]metric{hub, agent, broker} {
			delete(of, name)
		}
	}
	for _, section := range []struct {
		title   string
		metrics map[string]metric
	}{{"Hub", hub}, {"Agent", agent}, {"Broker", broker}, {"Several programs", shared}} {
		fmt.Fprintf(&page, "\n## %s\n\n| metric | type | labels | |\n|---|---|---|---|\n", section.title)
		for _, name := range slices.Sorted(maps.Keys(section.metrics)) {
			m := section.metrics[name]
			fmt.Fprintf(&page, "| `%s` | %s | %s | %s |\n", name, m.kind, cmp.Or(m.labels, "–"), strings.ReplaceAll(m.help, "|", `\|`))
		}
	}
	if *update {
		kit.NoError(t, os.WriteFile(reference, []byte(page.String()), 0o644))
	}
	got, err := os.ReadFile(reference)
	kit.NoError(t, err)
	if string(got) != page.String() {
		t.Errorf("docs/metrics.md is not what the code says; go test ./test/monitoring -run TestReference -update writes it")
	}
}

// scrape returns the metrics of the project that a program serves.
func scrape(t *testing.T, addr string) map[string]metric {
	response, err := http.Get("http://" + addr + "/metrics")
	kit.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	kit.NoError(t, err)
	metrics := map[string]metric{}
	for name, family := range families {
		if strings.HasPrefix(name, "workwire_") {
			metrics[name] = metric{name, strings.ToLower(family.GetType().String()), labelsOf(family), family.GetHelp()}
		}
	}
	return metrics
}

func labelsOf(family *dto.MetricFamily) string {
	var names []string
	for _, label := range family.GetMetric()[0].GetLabel() {
		names = append(names, label.GetName())
	}
	return strings.Join(names, ", ")
}
