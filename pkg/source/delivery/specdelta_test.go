package delivery_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// largeWork returns a work with n manifests of half a kilobyte.
func largeWork(n int) *workv1.ManifestWork {
	work := newWork("cluster1", "web")
	manifest := work.Spec.Workload.Manifests[0]
	work.Spec.Workload.Manifests = nil
	for i := range n {
		manifest.Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c%d"},"data":{"n":%q}}`, i, strings.Repeat("n", 500))
		work.Spec.Workload.Manifests = append(work.Spec.Workload.Manifests, manifest)
	}
	return work
}

// editor changes a work of cluster1, and plays an agent that holds what it was sent.
type editor struct {
	*reporter
	held *wire.Bundle
	n    int
}

// change changes the work, and checks whether the source sends the result as a delta, with the
// generation of the work.
func (d *editor) change(what string, change func(*workv1.ManifestWork), delta bool) {
	d.t.Helper()
	d.sends(what, func() { d.store.change(d.uid, change) }, delta)
}

// sends checks what act makes the source send.
func (d *editor) sends(what string, act func(), delta bool) {
	d.t.Helper()
	synctest.Wait()
	d.tap.mu.Lock()
	d.tap.events = nil
	d.tap.mu.Unlock()
	act()
	synctest.Wait()
	time.Sleep(2 * time.Second)
	synctest.Wait()
	d.tap.mu.Lock()
	defer d.tap.mu.Unlock()
	n := 0
	for _, m := range d.tap.events {
		received, isSpec := m.(*wire.Spec)
		difference, isDelta := m.(*wire.SpecDelta)
		if isDelta {
			var err error
			received, err = difference.Apply(d.held)
			kit.NoError(d.t, err)
		}
		if !isSpec && !isDelta {
			continue
		}
		if n++; isDelta != delta {
			d.t.Errorf("%s: a delta: %v, want %v", what, isDelta, delta)
		}
		if work := d.store.get(d.uid); received.Generation != wire.Generation(work.Generation) {
			d.t.Errorf("%s: generation %d was sent, want %d", what, received.Generation, work.Generation)
		}
		d.held = received.Bundle
	}
	if n != 1 {
		d.t.Errorf("%s: %d specs were sent, want 1", what, n)
	}
	want, _ := wire.ContentHash(wire.NewBundle(&d.store.get(d.uid).Spec))
	if got, _ := wire.ContentHash(d.held); got != want {
		d.t.Errorf("%s: the agent holds another spec", what)
	}
}

// edit changes one manifest.
func (d *editor) edit(w *workv1.ManifestWork) {
	d.n++
	w.Generation++
	w.Spec.Workload.Manifests[3].Raw = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"edited"},"data":{"n":"%d"}}`, d.n)
}

// says makes the agent report the newest generation, and that it reads this.
func (d *editor) says(accepts wire.Accepts) {
	d.t.Helper()
	s := d.whole(version(int64(d.n)))
	s.Generation, s.Accepts = wire.Generation(d.store.get(d.uid).Generation), accepts
	d.send("cluster1", s)
	synctest.Wait()
}

// lacks makes the agent ask for the work, which it does not hold.
func (d *editor) lacks() {
	d.send("cluster1", &wire.SpecResync{Agent: "a", Cluster: "cluster1", Source: "hub1", Partial: true, Versions: []wire.SpecVersion{{UID: d.uid}}})
}

// A small edit of a large work is sent as its difference to agents that read that, unless they may not
// have the spec before.
func TestSpecDeltas(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		b.start()
		d := &editor{reporter: &reporter{harness: b}}
		d.uid = largeWork(10).UID
		d.sends("the first", func() { b.store.put(largeWork(10)) }, false)
		d.says(wire.Accepts{Zstd: true})
		d.change("an agent that does not read deltas", d.edit, false)
		d.says(wire.Accepted)
		d.change("one that does", d.edit, true)
		d.change("its base is not confirmed", d.edit, true)
		d.says(wire.Accepted)
		d.change("a label", func(w *workv1.ManifestWork) { w.Labels = map[string]string{"a": "b"} }, true)
		d.change("a manifest less", func(w *workv1.ManifestWork) {
			w.Generation++
			w.Spec.Workload.Manifests = w.Spec.Workload.Manifests[1:]
		}, true)
		d.change("everything", func(w *workv1.ManifestWork) {
			w.Generation++
			for i := range w.Spec.Workload.Manifests {
				w.Spec.Workload.Manifests[i].Raw = []byte(strings.ReplaceAll(string(w.Spec.Workload.Manifests[i].Raw), "nnn", "mmm"))
			}
		}, false)
		if n := b.metric("workwire_source_spec_deltas_total"); n != 4 {
			t.Errorf("%v deltas were counted, want 4", n)
		}

		d.says(wire.Accepted)
		d.sends("the agent has lost what was sent whole", d.lacks, false)
		d.change("after that", d.edit, true)
		d.sends("the agent could not use the delta", d.lacks, false)
		d.change("soon after", d.edit, false)
		d.says(wire.Accepted)
		time.Sleep(10 * time.Minute)
		d.change("ten minutes later", d.edit, true)
		d.says(wire.Accepts{})
		d.change("another agent in its place", d.edit, false)
	})
}

// A spec that is sent again because the agent does not confirm it is sent whole: the one before may have
// been lost.
func TestRepeatedSpecIsNoDelta(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		b.start()
		d := &editor{reporter: &reporter{harness: b}}
		d.uid = largeWork(10).UID
		d.sends("the first", func() { b.store.put(largeWork(10)) }, false)
		d.says(wire.Accepted)
		d.change("a change", d.edit, true)
		d.sends("no status comes", func() {
			time.Sleep(5 * time.Minute)
			old := d.whole(version(1))
			old.Generation, old.Accepts = 1, wire.Accepted
			b.send("cluster1", old)
			time.Sleep(2 * time.Minute)
		}, false)
	})
}

// Of small works, a delta would save nothing.
func TestSmallSpecIsNoDelta(t *testing.T) {
	withHarness(t, remembering(), func(b *harness) {
		b.start()
		d := &editor{reporter: &reporter{harness: b}}
		d.uid = newWork("cluster1", "web").UID
		d.sends("the first", func() { b.store.put(newWork("cluster1", "web")) }, false)
		d.says(wire.Accepted)
		d.change("a change", bump, false)
	})
}
