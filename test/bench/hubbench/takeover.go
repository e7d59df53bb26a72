package hubbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// measureTakeover kills the leading one of two hubs, and measures the time until the other one
// publishes a work that was created then. All other works are published and reported before.
func (w *world) measureTakeover(ctx context.Context, run int) (err error) {
	const election = "--leader-election-namespace=default"
	if w.Program, w.Listen, err = w.StartHub(ctx, w.Hub, source, "hub-leader", election); err != nil {
		return err
	}
	before, err := w.Cost(ctx)
	if err != nil {
		return err
	}
	if _, err := w.publish(ctx, fmt.Sprintf("takeover-%d", run), before); err != nil {
		return err
	}
	if err := w.agents.Report(ctx); err != nil {
		return err
	}
	if err := w.Stored(ctx, w.Works); err != nil {
		return err
	}
	standby, address, err := w.StartHub(ctx, w.Hub, source, "hub-standby", election)
	defer func() { err = errors.Join(err, standby.Stop()) }()
	if err != nil {
		return err
	}
	waiting, err := procs.Of(standby.PID())
	if err != nil {
		return err
	}
	api, err := baseline.NewAPI(w.Plane.REST())
	if err != nil {
		return err
	}
	w.agents.Expect(1)
	killed := time.Now()
	if err := w.Program.Kill(); err != nil {
		return err
	}
	w.Program, w.Listen = standby, address
	work := baseline.ManifestWorks{API: api, Prefix: fmt.Sprintf("after-%d", run), Clusters: w.clusters}
	if _, err := work.Create(ctx, 1); err != nil {
		return err
	}
	took, err := w.agents.Await(ctx, killed)
	if err != nil {
		return err
	}
	w.Board.Add(takeover, report.Sample{Measured: took.Seconds(), Detail: map[string]any{"standbyMB": float64(waiting.RSS) / 1e6}})
	w.Progress("run %d: %s: %.2f s", run+1, takeover, took.Seconds())
	return errors.Join(w.Stop(), w.clear(ctx))
}
