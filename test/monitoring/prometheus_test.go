package monitoring

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
	"github.com/workwire/workwire/test/kit/promkit"
)

const files = "../../deploy/monitoring/"

// startPrometheus runs Prometheus with the alerts and scrapes targets, which are addresses by
// instance, each second.
func startPrometheus(t *testing.T, targets map[string]string) promkit.Server {
	t.Helper()
	alerts, err := filepath.Abs(files + "alerts.yaml")
	kit.NoError(t, err)
	type static struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	var scraped []static
	for instance, addr := range targets {
		scraped = append(scraped, static{[]string{addr}, map[string]string{"instance": instance}})
	}
	configuration, err := yaml.Marshal(map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{alerts},
		"scrape_configs": []any{map[string]any{"job_name": "workwire", "static_configs": scraped}},
	})
	kit.NoError(t, err)
	dir := t.TempDir()
	kit.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yaml"), configuration, 0o600))
	p, err := process.Start(dir, "prometheus", kit.Prometheus.Require(t), "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	kit.NoError(t, err)
	t.Cleanup(func() { kit.NoError(t, p.Stop()) })
	listening := regexp.MustCompile(`address=(127\.0\.0\.1:[1-9][0-9]*)`)
	addr, err := p.Line(t.Context(), func(line string) string {
		if found := listening.FindStringSubmatch(line); found != nil {
			return found[1]
		}
		return ""
	})
	kit.NoError(t, err)
	s := promkit.Server{URL: "http://" + addr}
	kit.Eventually(t, "Prometheus is ready", func() error {
		_, err := s.Series(t.Context(), "vector(1)")
		return err
	})
	return s
}

// TestDashboard: each query of the dashboard shows something of a hub, a broker and an agent that
// work, and no alert is raised about them.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.Create(w.Works(0), w.Work(0, "hello", "1", "hello"))
	w.Applied(w.Works(0), "hello")
	prometheus := startPrometheus(t, map[string]string{
		"hub": serveMetrics(t, w.hub), "agent": serveMetrics(t, w.agent), "broker": w.Broker.Broker.HTTPAddr()})
	prometheus.CheckQueries(t, promkit.DashboardQueries(t, files+"dashboard.json"))
	prometheus.CheckAlerts(t, promkit.ReadRules(t, files+"alerts.yaml"))
}

// TestAlerts: promtool's tests of the alerts pass, each alert has one, and both files have the same
// alerts.
func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool := kit.Promtool.Require(t)
	for _, arguments := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.Command(promtool, arguments...)
		command.Dir = files
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	alerts, operator := promkit.ReadRules(t, files+"alerts.yaml"), promkit.ReadRules(t, files+"prometheusrule.yaml")
	if a, o := fmt.Sprint(alerts), fmt.Sprint(operator); a != o {
		t.Errorf("prometheusrule.yaml differs from alerts.yaml:\n%s\n%s", o, a)
	}
	tests, err := os.ReadFile(files + "alerts_test.yaml")
	kit.NoError(t, err)
	page, err := os.ReadFile("../../docs/monitoring.md")
	kit.NoError(t, err)
	for _, name := range alerts.Alerts() {
		if !strings.Contains(string(tests), "- name: "+name+"\n") {
			t.Errorf("alerts_test.yaml has no test of %s", name)
		}
		if !strings.Contains(string(page), "### "+name+"\n") {
			t.Errorf("docs/monitoring.md says nothing about %s", name)
		}
	}
}

// TestMetricsOfRules: alerts and dashboard use only metrics that docs/metrics.md has.
func TestMetricsOfRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(reference)
	kit.NoError(t, err)
	queries := promkit.DashboardQueries(t, files+"dashboard.json")
	for _, group := range promkit.ReadRules(t, files+"alerts.yaml").Groups {
		for _, rule := range group.Rules {
			queries[fmt.Sprint(rule["alert"])] = fmt.Sprint(rule["expr"])
		}
	}
	name := regexp.MustCompile(`workwire_[a-z0-9_]+`)
	for _, where := range slices.Sorted(maps.Keys(queries)) {
		for _, found := range name.FindAllString(queries[where], -1) {
			if !strings.Contains(string(page), "`"+strings.TrimSuffix(found, "_bucket")+"`") {
				t.Errorf("%s uses %s, which no program has", where, found)
			}
		}
	}
}
