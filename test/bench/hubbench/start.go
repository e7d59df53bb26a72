package hubbench

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/workwire/workwire/test/bench/plane"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// startClusterWorks is how many works a cluster has when a start is measured.
const startClusterWorks = 100

// measureStart starts a hub on an API that has many works, all published and reported, and measures its
// CPU until it has read them, knows that it has all, and asked each cluster for the statuses that it
// does not have. The API is a simulated one: it costs the bench seconds to have so many works. No agent
// answers.
func (w *world) measureStart(ctx context.Context, run int) (err error) {
	api := httptest.NewServer(&storedWorks{count: w.StartWorks})
	defer api.Close()
	kubeconfig := filepath.Join(w.Dir, "stored-works.kubeconfig")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"x","cluster":{"server":%q}}],"users":[{"name":"x","user":{}}],`+
		`"contexts":[{"name":"x","context":{"cluster":"x","user":"x"}}],"current-context":"x"}`, api.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		return err
	}
	began := time.Now()
	if w.Program, w.Listen, err = w.StartHubOn(ctx, kubeconfig, w.Hub, source, "hub-start",
		"--leader-election-namespace=default", "--controllers=placement,replicaset,ttl"); err != nil {
		return err
	}
	stop := w.ProfileCPU(ctx, run, "hub-start", time.Duration(w.StartWorks)*time.Second/3000)
	err = procs.Poll(ctx, 10*time.Minute, "the hub has read its works and asked for statuses", func(ctx context.Context) error {
		if err := procs.Pause(ctx, 250*time.Millisecond); err != nil { // metrics cost the hub CPU, too
			return err
		}
		text, err := procs.Get(ctx, "http://"+w.Listen+"/metrics")
		if err != nil {
			return errors.Join(err, w.Program.Died())
		}
		var figures [3]float64
		for i, name := range []string{"workwire_hub_works", "workwire_source_works_pending", "workwire_source_status_resync_requests_total"} {
			metrics, err := plane.Parse(string(text), name)
			if err != nil {
				return err
			}
			figures[i] = metrics.Sum(name)
		}
		if figures[0] != float64(w.StartWorks) || figures[1] != 0 || figures[2] < float64(w.StartWorks/startClusterWorks) {
			return fmt.Errorf("works, those pending and requests for statuses are %v", figures)
		}
		return nil
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	used, err := procs.Of(w.Program.PID())
	if err != nil {
		return err
	}
	stop()
	w.Board.Add(startCPU, report.Sample{Measured: used.CPU.Seconds(), Detail: map[string]any{"seconds": took.Seconds()}})
	w.Board.Add(startMemory, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6}})
	w.Progress("run %d: %s: %.1f s of CPU in %.1f s, %d MB", run+1, startCPU, used.CPU.Seconds(), took.Seconds(), used.RSS/1e6)
	w.ProfileMemory(ctx, run, "hub-start")
	return w.Stop()
}
