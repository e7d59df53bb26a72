package agentbench

import (
	"context"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/procs"
	"github.com/workwire/workwire/test/bench/report"
)

// size is what is measured at one number of works.
type size struct {
	works                     int
	create, restart, statuses time.Duration
	spent                     cost // on creating
	used                      procs.Usage
}

// each is what creating one work has cost, in milliseconds of CPU.
func (s size) each() map[string]any {
	return map[string]any{
		"agent":        milliseconds(s.spent.agent) / float64(s.works),
		"controlPlane": milliseconds(s.spent.plane) / float64(s.works),
		"others":       milliseconds(s.spent.broker+s.spent.bench) / float64(s.works),
	}
}

// scale measures at the usual number of works and at the large one, and at the
// latter what happens when nothing does, and when one thing does.
func (w *world) scale(ctx context.Context, run int) error {
	few, err := w.sized(ctx, run, w.Works, nil)
	if err != nil {
		return err
	}
	many, err := w.sized(ctx, run, w.Scale, func(specs []*wire.Spec) error {
		if err := w.steady(ctx, run); err != nil {
			return err
		}
		if err := w.heal(ctx, run, specs); err != nil {
			return err
		}
		return w.feedback(ctx, run)
	})
	if err != nil {
		return err
	}
	compare := func(row string, few, many time.Duration, detail map[string]any) {
		if few == 0 || many == 0 {
			w.board.Miss(row, "no statuses after a restart")
			return
		}
		detail["fewSeconds"], detail["manySeconds"] = few.Seconds(), many.Seconds()
		w.board.Add(row, report.Sample{Measured: many.Seconds() / few.Seconds(), Detail: detail})
	}
	compare(scaleCreate, few.create, many.create, map[string]any{"fewCPUMillisecondsEach": few.each(), "manyCPUMillisecondsEach": many.each()})
	compare(scaleRestart, few.restart, many.restart, map[string]any{})
	compare(scaleStatuses, few.statuses, many.statuses, map[string]any{})
	w.board.Add(memoryScale, report.Sample{Measured: float64(many.used.RSS-few.used.RSS) / float64(w.Scale-w.Works) / 1e3, Detail: map[string]any{
		"fewMB": float64(few.used.RSS) / 1e6, "manyMB": float64(many.used.RSS) / 1e6, "manyPeakMB": float64(many.used.Peak) / 1e6,
	}})
	return nil
}

// sized measures with n works, and calls then with them.
func (w *world) sized(ctx context.Context, run, n int, then func([]*wire.Spec) error) (s size, err error) {
	if err := w.begin(ctx); err != nil {
		return s, err
	}
	specs := w.maker.Works("scale", n, objects)
	s.works = n
	before, err := w.cost(ctx)
	if err != nil {
		return s, err
	}
	name := fmt.Sprintf("create-%d", n)
	stop := w.profile(ctx, run, name, time.Duration(n)*2*time.Millisecond)
	took, err := w.publish(ctx, specs, events.Applied(1))
	if err != nil {
		return s, err
	}
	s.create = took.All
	stop()
	after, err := w.cost(ctx)
	if err != nil {
		return s, err
	}
	s.spent = after.since(before)
	w.Progress("run %d: %d works created in %v", run+1, n, s.create.Round(time.Millisecond))
	if s.used, err = w.memory(ctx); err != nil {
		return s, err
	}
	w.heap(ctx, run, name)
	if s.statuses, err = w.statusResync(ctx); err != nil {
		return s, err
	}
	if then != nil {
		if err := then(specs); err != nil {
			return s, err
		}
	}
	if s.restart, err = w.restart(ctx); err != nil {
		return s, err
	}
	w.Progress("run %d: %d works: status resync in %v, current after a restart of the agent in %v", run+1, n,
		s.statuses.Round(time.Millisecond), s.restart.Round(time.Millisecond))
	return s, w.end(ctx, specs)
}

// statusResync asks for all statuses, as a source that has lost them.
func (w *world) statusResync(ctx context.Context) (time.Duration, error) {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	took, err := w.source.Ask(bounded, false)
	if err != nil {
		return 0, err
	}
	return took.All, w.source.AwaitQuiet(ctx, 500*time.Millisecond)
}

// restart stops the agent, starts it again, and gives the time from its start
// until it has reported on every work.
func (w *world) restart(ctx context.Context) (time.Duration, error) {
	if err := w.agent.Stop(); err != nil {
		return 0, err
	}
	bounded, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	took, err := w.source.Await(bounded, func() error { return w.launch(ctx) })
	if err != nil {
		return 0, err
	}
	return took.All, w.source.AwaitQuiet(ctx, time.Second)
}
