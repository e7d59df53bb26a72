package statusreceiver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/kube"
)

func condition(name string, generation int64) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

func TestDecide(t *testing.T) {
	applied := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkApplied, 1)}}
	elsewhere := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkApplied, 1)}}
	elsewhere.Conditions[0].LastTransitionTime = metav1.NewTime(elsewhere.Conditions[0].LastTransitionTime.In(time.FixedZone("x", 3600)))
	deleted := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkDeleted, 0)}}
	const ours, other = workv1.ManifestWorkFinalizer, "example.com/other"
	for _, c := range []struct {
		name       string
		finalizers []string
		deleting   bool
		stored     workv1.ManifestWorkStatus
		reported   workv1.ManifestWorkStatus
		want       plan
	}{
		{name: "first status", finalizers: []string{ours}, reported: applied, want: plan{store: true}},
		{name: "the same", finalizers: []string{ours}, stored: applied, reported: applied},
		{name: "the same in another time zone", finalizers: []string{ours}, stored: applied, reported: elsewhere},
		{name: "nil and empty lists", finalizers: []string{ours},
			reported: workv1.ManifestWorkStatus{Conditions: []metav1.Condition{}}},
		{name: "a status while deleting", finalizers: []string{ours}, deleting: true, reported: applied, want: plan{store: true}},
		{name: "deleted", finalizers: []string{ours}, deleting: true, stored: applied, reported: deleted, want: plan{release: true}},
		{name: "deleted, others hold it", finalizers: []string{other, ours}, deleting: true, stored: applied, reported: deleted,
			want: plan{store: true, release: true}},
		{name: "deleted, others hold it, status stored", finalizers: []string{other, ours}, deleting: true, stored: deleted, reported: deleted,
			want: plan{release: true}},
		{name: "deleted once more, others hold it", finalizers: []string{other}, deleting: true, stored: deleted, reported: deleted},
		{name: "deleted, which nobody asked for", finalizers: []string{ours}, stored: applied, reported: deleted, want: plan{store: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Finalizers: c.finalizers}, Status: c.stored}
			if c.deleting {
				now := metav1.Now()
				work.DeletionTimestamp = &now
			}
			if got := decide(work, &c.reported); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestStatusPatchReplacesAll(t *testing.T) {
	got, err := kube.StatusPatch("u", &workv1.ManifestWorkStatus{}).Encode()
	if want := `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"add","path":"/status","value":{"resourceStatus":{}}}]`; err != nil || string(got) != want {
		t.Errorf("patch %s, %v; want %s", got, err, want)
	}
}

func TestRemoveFinalizerPatch(t *testing.T) {
	work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{UID: "u", Finalizers: []string{"a", workv1.ManifestWorkFinalizer, "b"}}}
	got, err := kube.RemoveFinalizerPatch(work, workv1.ManifestWorkFinalizer).Encode()
	want := `[{"op":"test","path":"/metadata/uid","value":"u"},` +
		`{"op":"test","path":"/metadata/finalizers/1","value":"` + workv1.ManifestWorkFinalizer + `"},` +
		`{"op":"remove","path":"/metadata/finalizers/1"}]`
	if err != nil || string(got) != want {
		t.Errorf("patch %s, %v; want %s", got, err, want)
	}
	work.Finalizers = []string{"a"}
	if got := kube.RemoveFinalizerPatch(work, workv1.ManifestWorkFinalizer); got != nil {
		t.Errorf("patch %v, want none", got)
	}
}

func TestUnstorableKeepsWhatWasThere(t *testing.T) {
	before := &workv1.ManifestWorkStatus{Conditions: []metav1.Condition{condition(workv1.WorkApplied, 1)}}
	got := unstorable(before, 2, errors.New(strings.Repeat("€", 20000)))
	c := meta.FindStatusCondition(got.Conditions, ConditionStatusStored)
	if len(before.Conditions) != 1 || len(got.Conditions) != 2 || c == nil {
		t.Fatalf("conditions %+v", got.Conditions)
	}
	if c.Status != metav1.ConditionFalse || c.Reason != ReasonRefused || c.ObservedGeneration != 2 || len(c.Message) > maxMessage {
		t.Errorf("status %s, reason %s, generation %d, %d bytes", c.Status, c.Reason, c.ObservedGeneration, len(c.Message))
	}
}
