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

// part is one load on the agent: all works created, changed or deleted.
type part struct {
	took    events.Took
	records time.Duration // how long the agent wrote to the API server after the last status
	spent   cost
}

// throughput creates, updates and deletes works: by the agent, and before and after that the same
// writes by plain clients with no agent running.
func (w *world) throughput(ctx context.Context, run int) error {
	specs := w.maker.Works("work", w.Works, objects)
	before, err := w.alone(ctx, fmt.Sprintf("before-%d", run), specs)
	if err != nil {
		return err
	}
	if err := w.begin(ctx); err != nil {
		return err
	}
	created, err := w.load(ctx, run, creates, specs, events.Applied(1))
	if err != nil {
		return err
	}
	used, err := w.memory(ctx)
	if err != nil {
		return err
	}
	w.Board.Add(memorySmall, report.Sample{Measured: float64(used.RSS) / 1e6, Detail: map[string]any{"peakMB": float64(used.Peak) / 1e6}})
	w.Board.Add(requests, report.Sample{Measured: float64(created.spent.Requests.Others) / float64(w.Works)})
	w.Board.Add(statuses, report.Sample{Measured: float64(created.spent.events.Statuses) / float64(w.Works)})
	w.ProfileMemory(ctx, run, "agent-create")
	updated, err := w.load(ctx, run, updates, events.Changed(specs), events.Applied(2))
	if err != nil {
		return err
	}
	deleted, err := w.load(ctx, run, deletes, events.Deleted(specs), events.Gone)
	if err != nil {
		return err
	}
	if err := w.end(ctx, nil); err != nil {
		return err
	}
	after, err := w.alone(ctx, fmt.Sprintf("after-%d", run), specs)
	if err != nil {
		return err
	}
	for _, row := range []struct {
		name          string
		load          part
		before, after time.Duration
	}{
		{creates, created, before.create, after.create},
		{updates, updated, before.update, after.update},
		{deletes, deleted, before.remove, after.remove},
	} {
		detail := row.load.spent.detail()
		detail["publishedSeconds"], detail["allSeconds"] = row.load.took.Published.Seconds(), row.load.took.All.Seconds()
		detail["recordsSeconds"] = row.load.records.Seconds()
		detail["baselineBefore"], detail["baselineAfter"] = rate(w.Works, row.before), rate(w.Works, row.after)
		w.Board.Add(row.name, report.Sample{Measured: rate(w.Works, row.load.took.All), Baseline: rate(2*w.Works, row.before+row.after), Detail: detail})
		w.Progress("run %d: %s: %.0f/s, and %v of writes after that; the API server alone %.0f/s before and %.0f/s after", run+1, row.name,
			rate(w.Works, row.load.took.All), row.load.records.Round(time.Millisecond), rate(w.Works, row.before), rate(w.Works, row.after))
	}
	w.Board.Add(normalised, report.Sample{Measured: rate(w.Works, created.took.All), Baseline: rate(2*objects*w.Works, before.plain+after.plain)})
	w.Board.Add(broker, report.Sample{Measured: rate(2*w.Works, before.relay+after.relay)})
	return nil
}

// load publishes specs and waits until the agent has reported of each what met is for.
func (w *world) load(ctx context.Context, run int, row string, specs []*wire.Spec, met func(*wire.Status) bool) (part, error) {
	w.Progress("run %d: %s", run+1, row)
	before, err := w.cost(ctx)
	if err != nil {
		return part{}, err
	}
	name, _, _ := strings.Cut(row, " ")
	stop := w.ProfileCPU(ctx, run, "agent-"+name, time.Duration(w.Works)*3*time.Millisecond)
	defer stop()
	took, err := w.publish(ctx, specs, met)
	if err != nil {
		return part{}, fmt.Errorf("%s: %w", row, err)
	}
	// Records are written after the status; a second status would be one too many.
	records, err := w.awaitRecords(ctx)
	if err != nil {
		return part{}, err
	}
	after, err := w.cost(ctx)
	return part{took: took, records: records, spent: after.since(before)}, err
}

// alone measures the surroundings; prefix is of the objects' names.
func (w *world) alone(ctx context.Context, prefix string, specs []*wire.Spec) (a alone, err error) {
	w.Progress("%s: the API server and the broker alone", prefix)
	if err := w.warm(ctx, prefix); err != nil {
		return a, err
	}
	writes := baseline.Works{API: w.api, Namespace: namespace, Prefix: prefix, Objects: objects}
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
	a.relay, err = events.Relay(ctx, w.Broker.Transport(string(source)), w.Broker.Transport(string(nobody)), nobody, specs)
	return a, err
}

// warm lets the API server do each kind of write some times before it counts: it makes much of what
// it needs for a resource when that is first used.
func (w *world) warm(ctx context.Context, prefix string) error {
	writes := baseline.Works{API: w.api, Namespace: namespace, Prefix: "warm-" + prefix, Objects: objects}
	if _, err := writes.Create(ctx, min(w.Works, 100)); err != nil {
		return err
	}
	if _, err := writes.Update(ctx); err != nil {
		return err
	}
	_, err := writes.Delete(ctx)
	return err
}
