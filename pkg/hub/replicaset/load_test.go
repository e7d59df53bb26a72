package replicaset

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestBursts: many changes of the works of a set are answered together, and
// those of one set are no work for another.
func TestBursts(t *testing.T) {
	w := newWorld(t, 20)
	r := w.start()
	w.place("p", w.clusters)
	w.place("q", w.clusters[:1])
	w.create(newSet("p"))
	other := newSet("q")
	other.Name = "other"
	w.create(other)
	w.eventually("all works are there", func() error {
		if n := len(w.works("set")) + len(w.works("other")); n != 21 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	w.settle(r, "set")
	w.settle(r, "other")
	looked := func(set string) time.Time {
		r.Controller.mu.Lock()
		defer r.Controller.mu.Unlock()
		return r.begun[types.NamespacedName{Namespace: w.namespace, Name: set}]
	}
	passes, otherLooked, began := passesOf(t, r.registry), looked("other"), time.Now()
	for range 3 {
		w.answer("set", w.clusters)
		w.answer("set", w.clusters, "Progressing=True")
	}
	w.answer("set", w.clusters)
	w.eventually("the status is there", func() error {
		set, err := w.set("set")
		if err == nil && (set.Status.Summary.Available != 20 || set.Status.Summary.Progressing != 0) {
			err = errors.New(statusText(&set.Status))
		}
		return err
	})
	most := int(time.Since(began)/pause) + 2
	if n := passesOf(t, r.registry) - passes; n > most {
		t.Errorf("%d passes for 140 changes, want at most %d", n, most)
	}
	if n := len(r.writes()); n > most {
		t.Errorf("%d writes of one status, want at most %d", n, most)
	}
	if again := looked("other"); !again.Equal(otherLooked) {
		t.Error("the other set was looked at too")
	}
}

// Two passes over a set do not begin within the pause; sets do not wait for each
// other.
func TestPause(t *testing.T) {
	c := &Controller{begun: make(map[types.NamespacedName]time.Time), memories: make(map[types.NamespacedName]*memory)}
	a, b := types.NamespacedName{Name: "a"}, types.NamespacedName{Name: "b"}
	first, _ := c.begin(a)
	if second, wait := c.begin(a); first == nil || second != nil || wait <= 0 || wait > pause {
		t.Errorf("the second pass waits %s", wait)
	}
	if other, _ := c.begin(b); other == nil {
		t.Error("another set waits")
	}
	c.begun[a] = time.Now().Add(-pause)
	if again, _ := c.begin(a); again != first {
		t.Error("after the pause: what was kept is not there")
	}
}

func BenchmarkDecide(b *testing.B) {
	var clusters, works []string
	for i := range 1000 {
		clusters = append(clusters, fmt.Sprintf("c%04d", i))
		works = append(works, fmt.Sprintf("c%04d:%s", i, map[bool]string{true: "ok", false: "old"}[i < 500]))
	}
	set := newSet("p")
	set.Spec.PlacementRefs[0].RolloutStrategy = progressive(10, 10)
	object, decisions := placementOf("p", clusters)
	s := situation{
		set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", works...),
		named: nobody, presence: there, now: start,
	}
	b.ReportAllocs()
	for b.Loop() {
		if p := decide(s); len(p.changes) != 10 {
			b.Fatalf("%d changes", len(p.changes))
		}
	}
}

// FuzzSameSpec compares manifests of any content: a manifest is the same as
// itself, and the order of two does not matter.
func FuzzSameSpec(f *testing.F) {
	f.Add([]byte(`{"metadata":{"creationTimestamp":null}}`), []byte(`{"metadata":{}}`))
	f.Add([]byte(`{"metadata":{"creationTimestamp":{"metadata":[]}}}`), []byte(`[]`))
	f.Add([]byte(`creationTimestamp`), []byte(`"creationTimestamp"`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !sameManifest(a, a) {
			t.Errorf("%q is not the same as itself", a)
		}
		if sameManifest(a, b) != sameManifest(b, a) {
			t.Errorf("%q and %q: it depends on the order", a, b)
		}
	})
}

// FuzzSetOf reads labels of any content: what was read gives the label again.
func FuzzSetOf(f *testing.F) {
	for _, label := range []string{"ns.set", "ns.set.v2", "", ".", "..", "a.", ".a"} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		if set, ok := setOf(label); ok && Label(set) != label {
			t.Errorf("%q is read as %v", label, set)
		}
		work := &workv1.ManifestWork{}
		work.Labels = map[string]string{workv1.ReplicaSetLabelKey: label, workv1.PlacementNameLabelKey: label}
		set := newSet(label)
		if held, extra := hold(situation{set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0]}}, works: []*workv1.ManifestWork{work}}); len(held) != 1 || len(extra) != 0 {
			t.Errorf("a work of placement %q is not held", label)
		}
	})
}
