package fleetbench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/bench/baseline"
	"github.com/workwire/workwire/test/bench/report"
	"github.com/workwire/workwire/test/kit/procs"
)

const (
	byHand   = "by-hand"              // the work that a person changes, on the first cluster
	rest     = 100 * time.Millisecond // between two changes of a person
	idleRuns = 500
)

// person changes one work again and again, each time when the change before has been reported.
type person struct {
	w       *world
	watch   watch.Interface
	version int
}

// newPerson makes the work.
func (w *world) newPerson(ctx context.Context) (*person, error) {
	p := &person{w: w}
	works := w.client.WorkV1().ManifestWorks(string(w.clusters[0]))
	made := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: byHand}}
	made.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(p.manifest())}}}
	made, err := works.Create(ctx, made, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	p.watch, err = works.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", byHand).String(), ResourceVersion: made.ResourceVersion,
	})
	if err != nil {
		return nil, err
	}
	_, err = p.reported(made.Generation)
	return p, err
}

func (p *person) manifest() string {
	p.version++
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"default"},"data":%s}`, byHand, baseline.Data(fmt.Sprint(p.version)))
}

// reported waits until a watch of the work shows that a generation is applied, and returns the work.
func (p *person) reported(generation int64) (*workv1.ManifestWork, error) {
	for e := range p.watch.ResultChan() {
		work, ok := e.Object.(*workv1.ManifestWork)
		if !ok {
			return nil, fmt.Errorf("watch of %s: %+v", byHand, e.Object)
		}
		if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied); c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration >= generation {
			return work, nil
		}
	}
	return nil, fmt.Errorf("the watch of %s has ended", byHand)
}

// edit is a change of a person: milliseconds until the work said that it is applied, and until each step on the way.
type edit struct {
	took  float64
	steps map[string]float64
}

// took returns how long the edits took.
func took(edits []edit) (all []float64) {
	for _, e := range edits {
		all = append(all, e.took)
	}
	return all
}

// milliseconds returns the steps of an edit that began then, and whose answer came at patched.
func milliseconds(began, patched time.Time, d *workv1.DeliveryStatus) map[string]float64 {
	steps := map[string]float64{"patched": patched.Sub(began).Seconds() * 1000}
	if d == nil {
		return steps
	}
	for step, at := range map[string]*metav1.MicroTime{
		"accepted": d.AcceptedTime, "published": d.PublishedTime, "acknowledged": d.AcknowledgedTime, "received": d.ReceivedTime, "applied": d.AppliedTime,
	} {
		if at != nil {
			steps[step] = at.Sub(began).Seconds() * 1000
		}
	}
	return steps
}

// changes changes the work n times, or until done is closed.
func (p *person) changes(ctx context.Context, n int, done <-chan struct{}) (edits []edit, err error) {
	works := p.w.client.WorkV1().ManifestWorks(string(p.w.clusters[0]))
	for range n {
		select {
		case <-done:
			return edits, nil
		default:
		}
		began := time.Now()
		work, err := works.Patch(ctx, byHand, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"workload":{"manifests":[%s]}}}`, p.manifest()), metav1.PatchOptions{})
		patched := time.Now()
		if err == nil {
			work, err = p.reported(work.Generation)
		}
		if err != nil {
			return nil, err
		}
		edits = append(edits, edit{time.Since(began).Seconds() * 1000, milliseconds(began, patched, work.Status.Delivery)})
		if err := procs.Pause(ctx, rest); err != nil {
			return nil, err
		}
	}
	return edits, nil
}

// besideRollout compares what a person's change takes while a template reaches all clusters with what it takes when nothing else happens.
func (w *world) besideRollout(ctx context.Context) error {
	p, err := w.newPerson(ctx)
	if err != nil {
		return err
	}
	defer p.watch.Stop()
	alone, err := p.changes(ctx, idleRuns, nil)
	if err != nil {
		return err
	}
	done, rollout := make(chan struct{}), error(nil)
	go func() {
		defer close(done)
		rollout = w.change(ctx)
	}()
	edits, err := p.changes(ctx, 100_000, done)
	<-done
	if err := errors.Join(err, rollout); err != nil {
		return err
	}
	idle, busy := took(alone), took(edits)
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(b.took, a.took) })
	var slowest []map[string]float64
	for _, e := range edits[:min(len(edits), 5)] {
		e.steps["reported"] = e.took
		slowest = append(slowest, e.steps)
	}
	w.Board.Add(name(w.size, beside), report.Sample{
		Measured: report.Quantile(busy, 0.99), Baseline: report.Quantile(idle, 0.99),
		Detail: map[string]any{"samples": len(busy), "p50": report.Quantile(busy, 0.5), "idleP50": report.Quantile(idle, 0.5), "max": report.Quantile(busy, 1), "slowest": slowest},
	})
	w.Progress("one work beside the change: p50 %.0f ms, p99 %.0f ms of %d; with nothing beside: %.0f, %.0f ms", report.Quantile(busy, 0.5),
		report.Quantile(busy, 0.99), len(busy), report.Quantile(idle, 0.5), report.Quantile(idle, 0.99))
	return w.client.WorkV1().ManifestWorks(string(w.clusters[0])).Delete(ctx, byHand, metav1.DeleteOptions{})
}
