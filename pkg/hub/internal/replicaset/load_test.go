package replicaset

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/test/kit"
)

// TestBursts checks that many changes of the works of a set cause few reconciles of it, and none of
// other sets.
func TestBursts(t *testing.T) {
	e := newEnv(t, 20)
	r := e.start()
	e.writePlacement("p", e.clusters)
	e.writePlacement("q", e.clusters[:1])
	e.createSet(newSet("p"))
	other := newSet("q")
	other.Name = "other"
	e.createSet(other)
	kit.Eventually(t, "all works are there", func() error {
		if n := len(e.works("set")) + len(e.works("other")); n != 21 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	e.awaitIdle(r, "set")
	e.awaitIdle(r, "other")
	key := types.NamespacedName{Namespace: e.namespace, Name: "other"}
	// A watch event about the other set may still be under way in the first attempts.
	kit.Eventually(t, "140 changes reconcile one set", func() error {
		e.reportApplied("set", e.clusters, "Progressing=True")
		e.awaitSummary(20)
		r.forget(key) // a reconcile remembers it again
		e.burst(r)
		r.Controller.mu.Lock()
		defer r.Controller.mu.Unlock()
		if r.memories[key] != nil {
			return errors.New("the other set was reconciled too")
		}
		return nil
	})
}

// burst changes the status of each work of a set 7 times.
func (e *env) burst(r *running) {
	e.t.Helper()
	reconciles, began := r.reconciles(), time.Now()
	r.writes()
	for range 3 {
		e.reportApplied("set", e.clusters)
		e.reportApplied("set", e.clusters, "Progressing=True")
	}
	e.reportApplied("set", e.clusters)
	e.awaitSummary(0)
	most := int(time.Since(began)/interval) + 2
	if n := r.reconciles() - reconciles; n > most {
		e.t.Errorf("%d reconciles for 140 changes, want at most %d", n, most)
	}
	if n := len(r.writes()); n > most {
		e.t.Errorf("%d writes of one status, want at most %d", n, most)
	}
}

// awaitSummary waits until all 20 works of the set count as available, and so many as progressing.
func (e *env) awaitSummary(progressing int) {
	e.t.Helper()
	kit.Eventually(e.t, fmt.Sprintf("20 works are available and %d progress", progressing), func() error {
		set, err := e.getSet("set")
		if err == nil && (set.Status.Summary.Available != 20 || set.Status.Summary.Progressing != progressing) {
			err = errors.New(statusText(&set.Status))
		}
		return err
	})
}

func BenchmarkDecide(b *testing.B) {
	for _, test := range []struct {
		name           string
		current, start int // clusters that have the template, and that receive it
	}{{"half", 500, 10}, {"all have it", 1000, 0}} {
		b.Run(test.name, func(b *testing.B) {
			var clusters, works []string
			for i := range 1000 {
				clusters = append(clusters, fmt.Sprintf("c%04d", i))
				works = append(works, fmt.Sprintf("c%04d:%s", i, map[bool]string{true: "ok", false: "old"}[i < test.current]))
			}
			set := newSet("p")
			set.Spec.PlacementRefs[0].RolloutStrategy = progressive(10, 10)
			object, decisions := placementOf("p", clusters)
			s := input{
				set: set, placements: []placement{{&set.Spec.PlacementRefs[0], object, decisions}}, works: worksOf("p", works...),
				workByName: noWork, presence: present, cluster: noCluster, now: start,
			}
			b.ReportAllocs()
			for b.Loop() {
				if p := decide(s); len(p.changes) != test.start {
					b.Fatalf("%d changes", len(p.changes))
				}
			}
		})
	}
}

// packed returns works as the cache of the hub holds them.
func packed(t testing.TB, list []*workv1.ManifestWork) []*workv1.ManifestWork {
	informers := controller.NewInformers(controller.InformersConfig{Client: versioned.NewForConfigOrDie(&rest.Config{}), Now: time.Now, Logger: slog.Default()})
	cache, err := works.NewCache(informers, nil)
	kit.NoError(t, err)
	for i, work := range list {
		cache.Created(work)
		list[i], _ = cache.Latest(controller.KeyOf(work))
		if works.SpecKey(list[i]) == "" {
			t.Fatal("it is not packed")
		}
	}
	return list
}

// overriddenInput returns what is to be decided about n clusters that have what the overrides make of the template for them. Half of the clusters of a
// set that has gone back are away and not chosen.
func overriddenInput(t testing.TB, n int, goneBack bool) input {
	values := make(map[string]string)
	var clusters, texts []string
	for i := range n {
		name := fmt.Sprintf("c%04d", i)
		clusters, texts, values[name] = append(clusters, name), append(texts, name+":ok"), name
	}
	set, list := newSet("p"), worksOf("p", texts...)
	for _, work := range list {
		work.Spec = template(work.Namespace)
	}
	in := input{
		set: set, works: packed(t, list), workByName: noWork, presence: present, cluster: noCluster, now: start, overriding: overridingOf(t, set, values),
		reach: clustersets.ReachOf(&clusterv1beta2.ManagedClusterSet{}),
	}
	if goneBack {
		in.own, in.revisions = set.DeepCopy(), rollout.Revisions{Own: 2, Proven: 1, Served: 1}
		manifests := &in.own.Spec.ManifestWorkTemplate.Workload.Manifests
		*manifests = append(*manifests, template("x").Workload.Manifests...)
		clusters = clusters[:n/2]
		away := func(name string) bool { return name > clusters[len(clusters)-1] }
		in.presence = func(name string) presence { return presence{away: away(name)} }
		in.cluster = func(name string) (*clusterv1.ManagedCluster, bool) {
			return managed(name, !away(name), tainted(clusterv1.ManagedClusterTaintUnreachable)), true
		}
	}
	object, decisions := placementOf("p", clusters)
	in.placements = []placement{{&set.Spec.PlacementRefs[0], object, decisions}}
	return in
}

// decideAgain brings what the overrides make of the template up to date, and decides.
func decideAgain(t testing.TB, in input) plan {
	in.overriding.renew(in.set, in.revisions.Served)
	if !in.overriding.renderAll(in.placements, time.Now().Add(time.Hour)) {
		t.Fatal("not all are rendered")
	}
	return decide(in)
}

func BenchmarkDecideOverridden(b *testing.B) {
	for name, goneBack := range map[string]bool{"all have it": false, "gone back": true} {
		b.Run(name, func(b *testing.B) {
			in := overriddenInput(b, 1000, goneBack)
			decideAgain(b, in) // which renders all
			b.ReportAllocs()
			for b.Loop() {
				if p := decideAgain(b, in); len(p.changes) != 0 {
					b.Fatalf("%d changes", len(p.changes))
				}
			}
		})
	}
}

// FuzzSameSpec checks that sameManifest is reflexive and symmetric.
func FuzzSameSpec(f *testing.F) {
	f.Add([]byte(`{"metadata":{"creationTimestamp":null}}`), []byte(`{"metadata":{}}`))
	f.Add([]byte(`{"metadata":{"creationTimestamp":{"metadata":[]}}}`), []byte(`[]`))
	f.Add([]byte(`creationTimestamp`), []byte(`"creationTimestamp"`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if !sameManifest(a, a) {
			t.Errorf("%q is not the same as itself", a)
		}
		if sameManifest(a, b) != sameManifest(b, a) {
			t.Errorf("%q and %q: the result depends on the order", a, b)
		}
	})
}

// FuzzParseLabel checks that parseLabel is the inverse of Label.
func FuzzParseLabel(f *testing.F) {
	for _, label := range []string{"ns.set", "ns.set.v2", "", ".", "..", "a.", ".a"} {
		f.Add(label)
	}
	f.Fuzz(func(t *testing.T, label string) {
		if set, ok := workv1alpha1.ParseWorkLabel(label); ok && workv1alpha1.WorkLabel(set) != label {
			t.Errorf("%q is parsed as %v", label, set)
		}
		work := &workv1.ManifestWork{}
		work.Labels = map[string]string{workv1.ReplicaSetLabelKey: label, workv1.PlacementNameLabelKey: label}
		set := newSet(label)
		if held, extra := assignWorks(input{set: set, placements: []placement{{ref: &set.Spec.PlacementRefs[0]}}, works: []*workv1.ManifestWork{work}}); len(held) != 1 || len(extra) != 0 {
			t.Errorf("a work of placement %q is not assigned", label)
		}
	})
}
