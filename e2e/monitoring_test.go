package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/workwire/workwire/test/kit/promkit"
)

// TestMonitoring: Prometheus scrapes the hub, the broker and the agent of the compose file, each query
// of the dashboard shows something of them, and no alert is raised.
func TestMonitoring(t *testing.T) {
	if _, err := exec.LookPath("prometheus"); err != nil && os.Getenv("E2E_REQUIRED") != "1" {
		t.Skip("Prometheus is not installed here") // so hack/images.sh has made no image of it
	}
	t.Parallel()
	s := up(t, "-monitoring", "docker-compose.yaml", "deploy/compose/monitoring.yaml")
	prometheus := promkit.Server{URL: "http://127.0.0.1:" + s.promPort}
	s.eventually("Prometheus scrapes hub, broker and agent", soon, func() error {
		var data struct {
			ActiveTargets []struct {
				Labels            struct{ Instance string }
				Health, LastError string
			}
		}
		if err := prometheus.Get(t.Context(), "/api/v1/targets", nil, &data); err != nil {
			return err
		}
		var errs []error
		for _, target := range data.ActiveTargets {
			if target.Health != "up" {
				errs = append(errs, fmt.Errorf("%s is %s: %s", target.Labels.Instance, target.Health, target.LastError))
			}
		}
		if len(data.ActiveTargets) != 3 {
			errs = append(errs, fmt.Errorf("%d targets", len(data.ActiveTargets)))
		}
		return errors.Join(errs...)
	})
	// The hub reaches Prometheus by the network of both, where its page must not be.
	address := s.docker("inspect", "--format={{(index .NetworkSettings.Networks \""+s.project+"_hub\").IPAddress}}", s.id("prometheus"))
	if out, err := s.run("", "docker", "exec", s.id("hub"), "/bin/work-hub", "health", "--url=http://"+address+":9090/-/ready"); err == nil {
		t.Errorf("the page of Prometheus is open to the hub: %s", out)
	}
	prometheus.CheckAlerts(t, promkit.ReadRules(t, "../deploy/monitoring/alerts.yaml"))
	prometheus.CheckQueries(t, promkit.DashboardQueries(t, "../deploy/monitoring/dashboard.json"))
}
