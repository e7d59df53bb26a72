package monitoring

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/process"
)

const files = "../../deploy/monitoring/"

// server is a running Prometheus.
type server struct{ url string }

// startPrometheus runs Prometheus with the alerts and scrapes targets, which are addresses by
// instance, each second.
func startPrometheus(t *testing.T, targets map[string]string) *server {
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
	p, err := process.Start(dir, "prometheus", "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"),
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
	s := &server{"http://" + addr}
	kit.Eventually(t, "Prometheus is ready", func() error {
		_, err := s.series(t.Context(), "vector(1)")
		return err
	})
	return s
}

// get asks the HTTP API and decodes the field data of the answer.
func (s *server) get(ctx context.Context, path string, query url.Values, to any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: to}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", path, answer.Error)
	}
	return nil
}

// series returns how many series a query has.
func (s *server) series(ctx context.Context, query string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := s.get(ctx, "/api/v1/query", url.Values{"query": {query}}, &data)
	return len(data.Result), err
}

// TestDashboard: each query of the dashboard shows something of a hub, a broker and an agent that
// work, and no alert is raised about them.
func TestDashboard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.applyWork()
	prometheus := startPrometheus(t, map[string]string{
		"hub": serveMetrics(t, w.hub), "agent": serveMetrics(t, w.agent), "broker": w.broker.Broker.HTTPAddr()})
	queries := dashboardQueries(t)
	kit.Eventually(t, "every query of the dashboard has a result", func() error {
		for title, query := range queries {
			n, err := prometheus.series(t.Context(), query)
			if err != nil {
				t.Fatalf("panel %s: %v", title, err)
			}
			if n == 0 {
				return fmt.Errorf("panel %s: %s shows nothing", title, query)
			}
			delete(queries, title)
		}
		return nil
	})
	checkAlerts(t, prometheus)
}

// checkAlerts: Prometheus has evaluated every alert, and none is about to be raised.
func checkAlerts(t *testing.T, prometheus *server) {
	type rule struct{ Name, Health, State, LastError string }
	kit.Eventually(t, "the alerts are evaluated and silent", func() error {
		var data struct{ Groups []struct{ Rules []rule } }
		if err := prometheus.get(t.Context(), "/api/v1/rules", nil, &data); err != nil {
			return err
		}
		seen := 0
		for _, group := range data.Groups {
			for _, r := range group.Rules {
				seen++
				if r.Health != "ok" || r.State != "inactive" {
					return fmt.Errorf("alert %s: health %s, state %s %s", r.Name, r.Health, r.State, r.LastError)
				}
			}
		}
		if want := len(readRules(t, "alerts.yaml").alerts()); seen != want {
			return fmt.Errorf("%d alerts, want %d", seen, want)
		}
		return nil
	})
}

// applyWork creates a work and waits until it is applied.
func (w *world) applyWork() {
	namespace := spokePlane.Namespace(w, "target")
	works := workclient.NewForConfigOrDie(hubPlane.REST()).WorkV1().ManifestWorks(w.cluster)
	_, err := works.Create(w.Context(), &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Spec: workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"hello","namespace":%q}}`, namespace)}}}}}}, metav1.CreateOptions{})
	kit.NoError(w, err)
	kit.Await(w, works, "hello", "is applied", func(work *workv1.ManifestWork) bool {
		return slices.ContainsFunc(work.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == workv1.WorkApplied && c.Status == metav1.ConditionTrue
		})
	})
}

// dashboardQueries returns the queries by the titles of their panels, with variables set.
func dashboardQueries(t *testing.T) map[string]string {
	data, err := os.ReadFile(files + "dashboard.json")
	kit.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr, RefID string }
		}
	}
	kit.NoError(t, json.Unmarshal(data, &dashboard))
	queries := map[string]string{}
	for _, panel := range dashboard.Panels {
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %s has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			queries[panel.Title+" "+target.RefID] = strings.ReplaceAll(target.Expr, "$__rate_interval", "1m")
		}
	}
	if len(queries) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return queries
}

// rules is a rule file of Prometheus.
type rules struct {
	Groups []struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	} `json:"groups"`
}

// alerts returns the names of the alerts.
func (r rules) alerts() []string {
	var names []string
	for _, group := range r.Groups {
		for _, rule := range group.Rules {
			names = append(names, fmt.Sprint(rule["alert"]))
		}
	}
	return names
}

func readRules(t *testing.T, name string) rules {
	data, err := os.ReadFile(files + name)
	kit.NoError(t, err)
	var file struct {
		rules
		Spec rules `json:"spec"`
	}
	kit.NoError(t, yaml.Unmarshal(data, &file))
	if len(file.Spec.Groups) > 0 {
		return file.Spec
	}
	return file.rules
}

// TestAlerts: promtool's tests of the alerts pass, each alert has one, and both files have the same
// alerts.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for _, arguments := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		command := exec.Command("promtool", arguments...)
		command.Dir = files
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
	alerts, operator := readRules(t, "alerts.yaml"), readRules(t, "prometheusrule.yaml")
	if a, o := fmt.Sprint(alerts), fmt.Sprint(operator); a != o {
		t.Errorf("prometheusrule.yaml differs from alerts.yaml:\n%s\n%s", o, a)
	}
	tests, err := os.ReadFile(files + "alerts_test.yaml")
	kit.NoError(t, err)
	page, err := os.ReadFile("../../docs/monitoring.md")
	kit.NoError(t, err)
	for _, name := range alerts.alerts() {
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
	queries := dashboardQueries(t)
	for _, group := range readRules(t, "alerts.yaml").Groups {
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
