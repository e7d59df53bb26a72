package agentbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// size is what is measured at one number of works.
type size struct {
	create, restart, statuses time.Duration
	created, restarted        cost
	used                      procs.Usage
}

// each is what a cost is for one of n works, in milliseconds of CPU.
func (c cost) each(n int) map[string]any {
	return map[string]any{
		"agent":        milliseconds(c.Program) / float64(n),
		"controlPlane": milliseconds(c.Plane) / float64(n),
		"broker":       milliseconds(c.Broker) / float64(n),
		"bench":        milliseconds(c.Bench) / float64(n),
	}
}

// scale measures at the usual number of works and at the large one, and at the latter what happens
// when nothing does, and when one thing does.
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
			w.Board.Miss(row, "no statuses after a restart")
			return
		}
		detail["fewSeconds"], detail["manySeconds"] = few.Seconds(), many.Seconds()
		w.Board.Add(row, report.Sample{Measured: many.Seconds() / few.Seconds(), Detail: detail})
	}
	compare(scaleCreate, few.create, many.create, map[string]any{
		"fewCPUMillisecondsEach": few.created.each(w.Works), "manyCPUMillisecondsEach": many.created.each(w.Scale),
	})
	compare(scaleRestart, few.restart, many.restart, map[string]any{
		"fewCPUMillisecondsEach": few.restarted.each(w.Works), "manyCPUMillisecondsEach": many.restarted.each(w.Scale),
	})
	compare(scaleStatuses, few.statuses, many.statuses, map[string]any{})
	w.Board.Add(memoryScale, report.Sample{Measured: float64(many.used.RSS-few.used.RSS) / float64(w.Scale-w.Works) / 1e3, Detail: map[string]any{
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
	before, err := w.cost(ctx)
	if err != nil {
		return s, err
	}
	name := fmt.Sprintf("create-%d", n)
	stop := w.ProfileCPU(ctx, run, "agent-"+name, time.Duration(n)*2*time.Millisecond)
	took, err := w.publish(ctx, specs, events.Applied(1))
	if err != nil {
		return s, err
	}
	s.create = took.All
	stop()
	if _, err := w.awaitRecords(ctx); err != nil {
		return s, err
	}
	after, err := w.cost(ctx)
	if err != nil {
		return s, err
	}
	s.created = after.since(before)
	w.Progress("run %d: %d works created in %v", run+1, n, s.create.Round(time.Millisecond))
	if s.used, err = w.memory(ctx); err != nil {
		return s, err
	}
	w.ProfileMemory(ctx, run, "agent-"+name)
	if s.statuses, err = w.statusResync(ctx); err != nil {
		return s, err
	}
	if then != nil {
		if err := then(specs); err != nil {
			return s, err
		}
	}
	if s.restart, s.restarted, err = w.restart(ctx, run, n); err != nil {
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

// restart stops the agent, starts it again, and gives the time from its start until it has reported
// on every work, and what that has cost.
func (w *world) restart(ctx context.Context, run, n int) (time.Duration, cost, error) {
	if err := w.Stop(); err != nil {
		return 0, cost{}, err
	}
	before, err := w.cost(ctx)
	if err != nil {
		return 0, cost{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	stop := func() {}
	took, err := w.source.Await(bounded, func() error {
		err := w.launch(ctx)
		if err == nil {
			stop = w.ProfileCPU(ctx, run, fmt.Sprintf("agent-restart-%d", n), time.Duration(n)*1200*time.Microsecond)
		}
		return err
	})
	if err != nil {
		return 0, cost{}, err
	}
	after, err := w.cost(ctx)
	stop()
	return took.All, after.since(before), errors.Join(err, w.source.AwaitQuiet(ctx, time.Second))
}
