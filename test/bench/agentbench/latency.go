package agentbench

import (
	"context"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

// rest is how long the agent is left alone between two samples.
const rest = 50 * time.Millisecond

// latency creates works one at a time and measures from publish to status.
func (w *world) latency(ctx context.Context, run int) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	specs := w.maker.Works("single", w.Latencies, objects)
	var times []float64
	for i, spec := range specs {
		took, err := w.publish(ctx, []*wire.Spec{spec}, events.Applied(1))
		if err != nil {
			return err
		}
		if i >= min(5, len(specs)/2) { // the first ones warm caches
			times = append(times, milliseconds(took.All))
		}
		if err := procs.Pause(ctx, rest); err != nil {
			return err
		}
	}
	w.spread(latencyP50, times, 0.5)
	w.spread(latencyP99, times, 0.99)
	w.Progress("run %d: one work: p50 %.1f ms, p99 %.1f ms", run+1, report.Quantile(times, 0.5), report.Quantile(times, 0.99))
	return w.end(ctx, specs)
}

// spread adds a quantile of samples to a row.
func (w *world) spread(row string, samples []float64, q float64) {
	w.Board.Add(row, report.Sample{Measured: report.Quantile(samples, q), Detail: map[string]any{
		"samples": len(samples), "p50": report.Quantile(samples, 0.5), "p95": report.Quantile(samples, 0.95), "max": report.Quantile(samples, 1),
	}})
}

// large applies one work of many objects and compares it, by the object, with small works of as
// many objects together.
func (w *world) large(ctx context.Context, run int) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	small := w.maker.Works("small", w.Large/objects, objects)
	few, err := w.publish(ctx, small, events.Applied(1))
	if err != nil {
		return err
	}
	if _, err := w.awaitRecords(ctx); err != nil {
		return err
	}
	one := w.maker.Large("large", w.Large, 1000)
	bytes := 0
	for _, manifest := range one.Bundle.Manifests {
		bytes += len(manifest.Raw)
	}
	before, err := w.cost(ctx)
	if err != nil {
		return err
	}
	all, err := w.publish(ctx, []*wire.Spec{one}, events.Applied(1))
	if err != nil {
		return err
	}
	if _, err := w.awaitRecords(ctx); err != nil {
		return err
	}
	after, err := w.cost(ctx)
	if err != nil {
		return err
	}
	detail := after.since(before).detail()
	detail["bytes"], detail["seconds"], detail["smallSeconds"] = bytes, all.All.Seconds(), few.All.Seconds()
	w.Board.Add(largeWork, report.Sample{Measured: rate(w.Large, all.All), Baseline: rate(len(small)*objects, few.All), Detail: detail})
	w.Progress("run %d: a work of %d objects in %v, as many in small works in %v", run+1, w.Large, all.All.Round(time.Millisecond), few.All.Round(time.Millisecond))
	return w.end(ctx, append(small, one))
}
