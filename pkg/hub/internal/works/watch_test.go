package works

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

// workWith makes a work; ours tells whether it carries the hub's finalizer.
func workWith(uid types.UID, ours, deleting bool) *workv1.ManifestWork {
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

// forgotten returns a work with the mark.
func forgotten(work *workv1.ManifestWork) *workv1.ManifestWork {
	work = work.DeepCopy()
	work.Annotations = map[string]string{workv1.ForgottenAnnotationKey: workv1.ForgottenValue}
	return work
}

// ofSet makes work one of a replica set.
func ofSet(work *workv1.ManifestWork) *workv1.ManifestWork {
	work.Labels = map[string]string{workv1.ReplicaSetLabelKey: "fleet.web"}
	return work
}

// free takes the finalizers from work.
func free(work *workv1.ManifestWork) *workv1.ManifestWork {
	work.Finalizers = nil
	return work
}

func TestEditOf(t *testing.T) {
	fresh, held := workWith("a", false, false), workWith("a", true, false)
	deleting, done := workWith("a", true, true), workWith("a", false, true)
	next, nextHeld := workWith("b", false, false), workWith("b", true, false)
	applied, older := workWith("a", true, false), workWith("a", true, false)
	applied.Status.Conditions = []metav1.Condition{{Type: workv1.WorkApplied, Status: metav1.ConditionTrue}}
	older.ResourceVersion = "6"
	at := func(generation int64, raw string) *workv1.ManifestWork {
		w := workWith("a", true, false)
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
		want          edit
	}{
		{name: "created", after: fresh, want: edit{finalizer: true}},
		{name: "found at the start", after: held, want: edit{changed: "a"}},
		{name: "found while being deleted", after: deleting, want: edit{changed: "a"}},
		{name: "finalizer put", before: fresh, after: held, want: edit{changed: "a"}},
		{name: "changed", before: held, after: held, want: edit{changed: "a"}},
		{name: "changed before its finalizer", before: fresh, after: fresh, want: edit{finalizer: true}},
		{name: "changed spec", before: at(3, "x"), after: at(4, "y"), want: edit{changed: "a"}},
		{name: "new status", before: at(3, "x"), after: at(3, "x"), want: edit{changed: "a"}},
		{name: "restored to a lower generation", before: at(3, "x"), after: at(2, "x"), want: edit{changed: "a", restored: true}},
		{name: "restored and edited", before: at(3, "x"), after: at(3, "y"), want: edit{changed: "a", restored: true}},
		{name: "restored, with another delete option", before: at(3, "x"), after: orphaned, want: edit{changed: "a", restored: true}},
		{name: "restored from before its finalizer, and edited", before: at(3, "x"), after: free(at(3, "y")), want: edit{restored: true, finalizer: true}},
		{name: "another work at a lower generation", before: at(3, "x"), after: nextHeld, want: edit{lost: at(3, "x"), changed: "b"}},
		{name: "deletion asked for", before: held, after: deleting, want: edit{changed: "a"}},
		{name: "released, others hold it", before: deleting, after: done, want: edit{removed: deleting}},
		{name: "then gone", before: done},
		{name: "released and gone", before: deleting, want: edit{removed: deleting}},
		{name: "finalizer taken away", before: held, after: fresh, want: edit{finalizer: true}},
		{name: "gone, and nobody deleted it", before: held, want: edit{lost: held}},
		{name: "forgotten", before: held, after: forgotten(held), want: edit{forgotten: held}},
		{name: "forgotten while being deleted", before: deleting, after: forgotten(deleting), want: edit{forgotten: deleting}},
		{name: "forgotten without a finalizer", after: forgotten(fresh)},
		{name: "forgotten, at the start", after: forgotten(held)},
		{name: "forgotten and released", before: forgotten(deleting), after: forgotten(done)},
		{name: "forgotten and gone", before: forgotten(held)},
		{name: "created while the hub runs", after: fresh, running: true, want: edit{finalizer: true, byHand: true}},
		{name: "created with the finalizer", after: held, running: true, want: edit{changed: "a", byHand: true}},
		{name: "with a status at the start", after: applied, want: edit{changed: "a"}},
		{name: "came back with a status", after: applied, running: true, want: edit{changed: "a", restored: true}},
		{name: "came back with a status in place of another", before: nextHeld, after: applied, running: true, want: edit{lost: nextHeld, changed: "a", restored: true}},
		{name: "an older status", before: applied, after: older, want: edit{changed: "a", statuses: true}},
		{name: "a newer status", before: older, after: applied, want: edit{changed: "a"}},
		{name: "deleted before its finalizer", before: fresh},
		{name: "created again unseen", before: held, after: next, want: edit{lost: held, finalizer: true}},
		{name: "created again unseen, held", before: held, after: nextHeld, want: edit{lost: held, changed: "b"}},
		{name: "edited by hand", before: at(3, "x"), after: at(4, "y"), running: true, want: edit{changed: "a", byHand: true}},
		{name: "a status is written", before: at(3, "x"), after: at(3, "x"), running: true, want: edit{changed: "a"}},
		{name: "deleted by hand", before: held, after: deleting, running: true, want: edit{changed: "a", byHand: true}},
		{name: "deleted and gone", before: deleting, running: true, want: edit{removed: deleting}},
		{name: "edited by a replica set", before: ofSet(at(3, "x")), after: ofSet(at(4, "y")), running: true, want: edit{changed: "a"}},
		{name: "not addressable", after: fresh, unaddressable: true, want: edit{changed: "a"}},
		{name: "not addressable, deleted", before: fresh, unaddressable: true, want: edit{removed: fresh}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := editOf(c.before, c.after, !c.unaddressable, !c.running); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestFinalizerPatchKeepsTheOthersAndGuards(t *testing.T) {
	before := workWith("a", false, false)
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
