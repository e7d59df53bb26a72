package agentbench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
)

// alone is what the API server and the broker do alone.
type alone struct {
	plain, create, update, remove, relay time.Duration
}

// throughput creates, updates and deletes works: first the same writes by plain
// clients with no agent running, then by the agent.
func (w *world) throughput(ctx context.Context, run int) error {
	specs := w.maker.Works("work", w.Works, objects)
	base, err := w.alone(ctx, run, specs)
	if err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	part := func(row string, specs []*wire.Spec, met func(*wire.Status) bool, alone time.Duration) (cost, events.Took, error) {
		before, err := w.cost(ctx)
		if err != nil {
			return cost{}, events.Took{}, err
		}
		name, _, _ := strings.Cut(row, " ")
		stop := w.profile(ctx, run, name, time.Duration(w.Works)*3*time.Millisecond)
		defer stop()
		took, err := w.publish(ctx, specs, met)
		if err != nil {
			return cost{}, took, fmt.Errorf("%s: %w", row, err)
		}
		// Records are written after the status; a second status would be one too many.
		if err := w.source.AwaitQuiet(ctx, time.Second); err != nil {
			return cost{}, took, err
		}
		after, err := w.cost(ctx)
		spent := after.since(before)
		detail := spent.detail()
		detail["publishedSeconds"], detail["allSeconds"] = took.Published.Seconds(), took.All.Seconds()
		w.board.Add(row, report.Sample{Measured: rate(w.Works, took.All), Baseline: rate(w.Works, alone), Detail: detail})
		w.Progress("run %d: %s: %.0f/s, the API server alone %.0f/s", run+1, row, rate(w.Works, took.All), rate(w.Works, alone))
		return spent, took, err
	}
	spent, took, err := part(creates, specs, events.Applied(1), base.create)
	if err != nil {
		return err
	}
	plain := rate(objects*w.Works, base.plain)
	w.board.Add(normalised, report.Sample{Measured: rate(w.Works, took.All), Baseline: plain})
	w.board.Add(requests, report.Sample{Measured: float64(spent.requests.Others) / float64(w.Works)})
	w.board.Add(statuses, report.Sample{Measured: float64(spent.events.Statuses) / float64(w.Works)})
	w.board.Add(broker, report.Sample{Measured: rate(w.Works, base.relay)})
	used, err := w.memory(ctx)
	if err != nil {
		return err
	}
	w.board.Add(memorySmall, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6}})
	w.heap(ctx, run, "create")
	if _, _, err := part(updates, events.Changed(specs), events.Applied(2), base.update); err != nil {
		return err
	}
	if _, _, err := part(deletes, events.Deleted(specs), events.Gone, base.remove); err != nil {
		return err
	}
	return w.end(ctx, nil)
}

func (w *world) alone(ctx context.Context, run int, specs []*wire.Spec) (a alone, err error) {
	w.Progress("run %d: the API server and the broker alone", run+1)
	if err := w.warm(ctx, run); err != nil {
		return a, err
	}
	writes := baseline.Works{API: w.api, Namespace: namespace, Prefix: fmt.Sprintf("alone-%d", run), Objects: objects}
	if a.plain, err = writes.Creates(ctx, objects*w.Works); err != nil {
		return a, err
	}
	if a.create, err = writes.Create(ctx, w.Works); err != nil {
		return a, err
	}
	if a.update, err = writes.Update(ctx); err != nil {
		return a, err
	}
	if a.remove, err = writes.Delete(ctx); err != nil {
		return a, err
	}
	a.relay, err = events.Relay(ctx, w.broker.Transport(string(source), source), w.broker.Transport(string(nobody), source), nobody, specs)
	return a, err
}

// warm lets the API server do each kind of write some times before it counts: it
// makes much of what it needs for a resource when that is first used.
func (w *world) warm(ctx context.Context, run int) error {
	writes := baseline.Works{API: w.api, Namespace: namespace, Prefix: fmt.Sprintf("warm-%d", run), Objects: objects}
	if _, err := writes.Create(ctx, min(w.Works, 100)); err != nil {
		return err
	}
	if _, err := writes.Update(ctx); err != nil {
		return err
	}
	_, err := writes.Delete(ctx)
	return err
}
