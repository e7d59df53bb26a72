package finalizer

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
)

// work makes one; ours tells whether it carries the hub's finalizer.
func work(uid types.UID, ours, deleting bool) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: "7"}}
	if ours {
		w.Finalizers = []string{workv1.ManifestWorkFinalizer}
	} else {
		w.Finalizers = []string{"example.com/other"}
	}
	if deleting {
		now := metav1.Now()
		w.DeletionTimestamp = &now
	}
	return w
}

func TestDecide(t *testing.T) {
	fresh, held := work("a", false, false), work("a", true, false)
	deleting, done := work("a", true, true), work("a", false, true)
	next, nextHeld := work("b", false, false), work("b", true, false)
	applied, older := work("a", true, false), work("a", true, false)
	applied.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue}}
	older.ResourceVersion = "6"
	at := func(generation int64, raw string) *workv1.ManifestWork {
		w := work("a", true, false)
		w.Generation = generation
		w.Spec.Workload.Manifests = []workv1.Manifest{{RawExtension: runtime.RawExtension{Raw: []byte(raw)}}}
		return w
	}
	orphaned := at(3, "x")
	orphaned.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeOrphan}
	for _, c := range []struct {
		name          string
		before, after *workv1.ManifestWork
		unaddressable bool
		running       bool // the work was not there when the hub started
		want          step
	}{
		{name: "created", after: fresh, want: step{finalizer: true}},
		{name: "found at the start", after: held, want: step{changed: "a"}},
		{name: "found while being deleted", after: deleting, want: step{changed: "a"}},
		{name: "finalizer put", before: fresh, after: held, want: step{changed: "a"}},
		{name: "changed", before: held, after: held, want: step{changed: "a"}},
		{name: "changed before its finalizer", before: fresh, after: fresh, want: step{finalizer: true}},
		{name: "changed spec", before: at(3, "x"), after: at(4, "y"), want: step{changed: "a"}},
		{name: "new status", before: at(3, "x"), after: at(3, "x"), want: step{changed: "a"}},
		{name: "restored to a lower generation", before: at(3, "x"), after: at(2, "x"), want: step{changed: "a", restored: true}},
		{name: "restored and edited", before: at(3, "x"), after: at(3, "y"), want: step{changed: "a", restored: true}},
		{name: "restored, with another delete option", before: at(3, "x"), after: orphaned, want: step{changed: "a", restored: true}},
		{name: "another work at a lower generation", before: at(3, "x"), after: nextHeld, want: step{lost: at(3, "x"), changed: "b"}},
		{name: "deletion asked for", before: held, after: deleting, want: step{changed: "a"}},
		{name: "released, others hold it", before: deleting, after: done, want: step{removed: deleting}},
		{name: "then gone", before: done},
		{name: "released and gone", before: deleting, want: step{removed: deleting}},
		{name: "removed by force", before: held, after: fresh, want: step{removed: held, finalizer: true}},
		{name: "gone, and nobody deleted it", before: held, want: step{lost: held}},
		{name: "created while the hub runs", after: fresh, running: true, want: step{finalizer: true}},
		{name: "created with the finalizer", after: held, running: true, want: step{changed: "a"}},
		{name: "with a status at the start", after: applied, want: step{changed: "a"}},
		{name: "came back with a status", after: applied, running: true, want: step{changed: "a", restored: true}},
		{name: "came back with a status in place of another", before: nextHeld, after: applied, running: true, want: step{lost: nextHeld, changed: "a", restored: true}},
		{name: "an older status", before: applied, after: older, want: step{changed: "a", statuses: true}},
		{name: "a newer status", before: older, after: applied, want: step{changed: "a"}},
		{name: "deleted before its finalizer", before: fresh},
		{name: "made anew unseen", before: held, after: next, want: step{lost: held, finalizer: true}},
		{name: "made anew unseen, held", before: held, after: nextHeld, want: step{lost: held, changed: "b"}},
		{name: "not addressable", after: fresh, unaddressable: true, want: step{changed: "a"}},
		{name: "not addressable, deleted", before: fresh, unaddressable: true, want: step{removed: fresh}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(c.before, c.after, !c.unaddressable, !c.running); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestFinalizerPatchKeepsTheOthersAndGuards(t *testing.T) {
	before := work("a", false, false)
	data, err := kube.FinalizerPatch(before, workv1.ManifestWorkFinalizer)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	text := `{"metadata":{"uid":"a","resourceVersion":"7","finalizers":["example.com/other","` + workv1.ManifestWorkFinalizer + `"]}}`
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("patch %s, want %s", data, text)
	}
	if len(before.Finalizers) != 1 {
		t.Error("the cached work was written to")
	}
}
