// Package promkit asks a running Prometheus, and reads the files of deploy/monitoring.
//
//	s := promkit.Server{URL: "http://127.0.0.1:9090"}
//	s.CheckAlerts(t, rules)
package promkit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/test/kit"
)

// Server is a running Prometheus. Its methods may be called from any goroutine.
type Server struct {
	// URL is that of its page, without a slash at the end.
	URL string
}

// Get asks the HTTP API and decodes the field data of the answer. The error has the reason that
// Prometheus gives.
func (s Server) Get(ctx context.Context, path string, query url.Values, to any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path+"?"+query.Encode(), nil)
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

// Series returns how many series a query has.
func (s Server) Series(ctx context.Context, query string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := s.Get(ctx, "/api/v1/query", url.Values{"query": {query}}, &data)
	return len(data.Result), err
}

// CheckQueries waits until each of the queries, by title, has a result. A query that Prometheus
// refuses fails the test.
func (s Server) CheckQueries(t testing.TB, queries map[string]string) {
	t.Helper()
	kit.Eventually(t, "every query of the dashboard has a result", func() error {
		for title, query := range queries {
			n, err := s.Series(t.Context(), query)
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
}

// CheckAlerts waits until Prometheus has evaluated every alert of rules, and none is about to be
// raised.
func (s Server) CheckAlerts(t testing.TB, rules Rules) {
	t.Helper()
	type rule struct{ Name, Health, State, LastError string }
	kit.Eventually(t, "the alerts are evaluated and silent", func() error {
		var data struct{ Groups []struct{ Rules []rule } }
		if err := s.Get(t.Context(), "/api/v1/rules", nil, &data); err != nil {
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
		if want := len(rules.Alerts()); seen != want {
			return fmt.Errorf("%d alerts, want %d", seen, want)
		}
		return nil
	})
}

// DashboardQueries returns the queries of a dashboard of Grafana by the titles of their panels, with
// variables set.
func DashboardQueries(t testing.TB, file string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(file)
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

// Rules is a rule file of Prometheus.
type Rules struct {
	// Groups are its groups of rules, whose fields are those of Prometheus.
	Groups []struct {
		Name  string           `json:"name"`
		Rules []map[string]any `json:"rules"`
	} `json:"groups"`
}

// Alerts returns the names of the alerts.
func (r Rules) Alerts() []string {
	var names []string
	for _, group := range r.Groups {
		for _, rule := range group.Rules {
			names = append(names, fmt.Sprint(rule["alert"]))
		}
	}
	return names
}

// ReadRules reads a rule file, or a PrometheusRule of the Prometheus operator.
func ReadRules(t testing.TB, path string) Rules {
	t.Helper()
	data, err := os.ReadFile(path)
	kit.NoError(t, err)
	var file struct {
		Rules
		Spec Rules `json:"spec"`
	}
	kit.NoError(t, yaml.Unmarshal(data, &file))
	if len(file.Spec.Groups) > 0 {
		return file.Spec
	}
	return file.Rules
}
