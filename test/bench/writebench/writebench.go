// Package writebench measures what writes cost the API server of a hub, with no hub: its CPU time for each
// request. That time depends less on what else runs on the machine than durations do.
package writebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/plane"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/bench/subject"
	"github.com/workwire/workwire/test/kit/controlplane"
)

const namespace = "cluster-written"

// Options say what to measure. All are required, but Stored.
type Options struct {
	Requests int // of each kind
	Stored   int // works that are there besides
}

// prefix begins the names of all rows.
const prefix = "write: "

// Rows are the rows about writes, in the order of the table.
func Rows(o Options) []*report.Row {
	var rows []*report.Row
	for _, r := range slices.Concat(creates, requests) {
		if r.row == "" {
			continue
		}
		rows = append(rows, &report.Row{Name: prefix + r.row, Target: fmt.Sprintf("CPU of the API server, %d works", o.Requests+o.Stored), Unit: "ms"})
	}
	return rows
}

// world is the API server, and what is written to it.
type world struct {
	Options
	plane  *plane.Plane
	api    *baseline.API
	turn   int
	scrape float64 // bytes that the API server allocates for its metrics

	maps, works, large []object
}

// Run measures the rows of board that are about writes.
func Run(ctx context.Context, c subject.Config, o Options, board *report.Board) (err error) {
	wanted := func(r request) bool { return board.Wants(prefix + r.row) }
	if !slices.ContainsFunc(slices.Concat(creates, requests), wanted) {
		return nil
	}
	c.Progress("starting a hub API with %d works", o.Stored)
	started, err := plane.Start(ctx, c.Dir, c.Control, controlplane.Hub, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, started.Stop()) }()
	w := &world{Options: o, plane: started}
	if w.api, err = baseline.NewAPI(started.REST()); err != nil {
		return err
	}
	if err := w.fill(ctx); err != nil {
		return err
	}
	// Statuses of a megabyte fill the API server's memory, which makes all writes dearer: they come last.
	for _, large := range []bool{false, true} {
		for run := range c.Runs {
			if err := w.makeObjects(ctx, run, large, board); err != nil {
				return err
			}
			for _, r := range requests {
				if r.large != large || !wanted(r) {
					continue
				}
				sample, err := w.measure(ctx, r)
				if err != nil {
					return err
				}
				board.Add(prefix+r.row, sample)
				c.Progress("run %d: %s: %.2f ms, %.0f KB", run+1, r.row, sample.Measured, sample.Detail["allocatedKB"])
			}
		}
	}
	return nil
}

// fill makes the works that are there besides, each with a status.
func (w *world) fill(ctx context.Context) error {
	if err := w.plane.Namespace(ctx, namespace); err != nil {
		return err
	}
	works := baseline.ManifestWorks{API: w.api, Prefix: "stored", Clusters: []wire.ClusterName{namespace}}
	_, err := works.Create(ctx, w.Stored)
	return err
}

// makeObjects makes what the other requests write, which is what creations cost. Works get their statuses, so that the
// first write of one costs what the others do.
func (w *world) makeObjects(ctx context.Context, run int, large bool, board *report.Board) error {
	if err := w.measureScrape(ctx); err != nil {
		return err
	}
	w.maps, w.works, w.large = nil, nil, nil
	made := []*[]object{&w.maps, &w.works}
	n := w.Requests
	if large {
		made, n = []*[]object{&w.large}, max(n/25, 1)
	}
	for _, set := range made {
		for i := range n {
			*set = append(*set, object{name: fmt.Sprintf("run-%d-of-%d-%d", run, n, i)})
		}
	}
	for _, r := range creates {
		if r.large != large {
			continue
		}
		sample, err := w.measure(ctx, r)
		if err != nil {
			return err
		}
		if r.row != "" {
			board.Add(prefix+r.row, sample)
		}
	}
	return nil
}

// measure makes a kind of request, from as many clients as the baseline has, and returns the CPU time of each in
// milliseconds.
func (w *world) measure(ctx context.Context, r request) (report.Sample, error) {
	objects := w.works
	switch {
	case r.plain:
		objects = w.maps
	case r.large:
		objects = w.large
	}
	n := len(objects)
	w.turn++
	allocated, err := w.plane.Allocated(ctx)
	if err != nil {
		return report.Sample{}, err
	}
	server, etcd := w.plane.Uses(apiServer).CPU, w.plane.Uses("etcd").CPU
	took, err := baseline.Each(n, func(i int) (err error) {
		objects[i].answer, err = w.api.Write(ctx, r.method, r.path(objects[i]), r.what, r.body(objects[i], w.turn))
		return err
	})
	if err != nil {
		return report.Sample{}, err
	}
	each := func(cpu time.Duration) float64 { return cpu.Seconds() * 1000 / float64(n) }
	used, etcd := w.plane.Uses(apiServer), w.plane.Uses("etcd").CPU-etcd
	after, err := w.plane.Allocated(ctx)
	return report.Sample{Measured: each(used.CPU - server), Detail: map[string]any{
		"allocatedKB": (after - allocated - w.scrape) / 1e3 / float64(n), "etcdMilliseconds": each(etcd),
		"perSecond": float64(n) / took.Seconds(), "rssMB": float64(used.RSS) / 1e6,
	}}, err
}

// measureScrape measures how much the API server allocates to say how much it has allocated.
func (w *world) measureScrape(ctx context.Context) error {
	before, err := w.plane.Allocated(ctx)
	if err != nil {
		return err
	}
	after, err := w.plane.Allocated(ctx)
	w.scrape = after - before
	return err
}

// apiServer is the program whose time is measured.
const apiServer = "hub-apiserver"
