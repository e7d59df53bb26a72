package works

import (
	"errors"
	"strings"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

func conditionOf(name string, generation int64) metav1.Condition {
	return metav1.Condition{Type: name, Status: metav1.ConditionTrue, Reason: "R", ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
}

func TestPlanStatus(t *testing.T) {
	applied := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{conditionOf(workv1.WorkApplied, 1)}}
	deleted := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{conditionOf(workv1.WorkDeleted, 0)}}
	const ours, other = workv1.ManifestWorkFinalizer, "example.com/other"
	for _, c := range []struct {
		name       string
		finalizers []string
		deleting   bool
		stored     workv1.ManifestWorkStatus
		reported   workv1.ManifestWorkStatus
		want       statusPlan
	}{
		{name: "first status", finalizers: []string{ours}, reported: applied, want: statusPlan{store: true}},
		{name: "the same", finalizers: []string{ours}, stored: applied, reported: applied},
		{name: "a status while deleting", finalizers: []string{ours}, deleting: true, reported: applied, want: statusPlan{store: true}},
		{name: "deleted", finalizers: []string{ours}, deleting: true, stored: applied, reported: deleted, want: statusPlan{release: true}},
		{name: "deleted, others hold it", finalizers: []string{other, ours}, deleting: true, stored: applied, reported: deleted,
			want: statusPlan{store: true, release: true}},
		{name: "deleted, others hold it, status stored", finalizers: []string{other, ours}, deleting: true, stored: deleted, reported: deleted,
			want: statusPlan{release: true}},
		{name: "deleted once more, others hold it", finalizers: []string{other}, deleting: true, stored: deleted, reported: deleted},
		{name: "deleted, which nobody asked for", finalizers: []string{ours}, stored: applied, reported: deleted, want: statusPlan{store: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Finalizers: c.finalizers}, Status: c.stored}
			if c.deleting {
				now := metav1.Now()
				work.DeletionTimestamp = &now
			}
			if got := planStatus(work, &c.reported, !apiequality.Semantic.DeepEqual(c.stored, c.reported)); got != c.want {
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
	before := &workv1.ManifestWorkStatus{Conditions: []metav1.Condition{conditionOf(workv1.WorkApplied, 1)}}
	got := unstorable(before, 2, errors.New(strings.Repeat("€", 20000)))
	c := meta.FindStatusCondition(got.Conditions, workv1.WorkStatusStored)
	if len(before.Conditions) != 1 || len(got.Conditions) != 2 || c == nil {
		t.Fatalf("conditions %+v", got.Conditions)
	}
	if c.Status != metav1.ConditionFalse || c.Reason != workv1.ReasonStatusRefused || c.ObservedGeneration != 2 || len(c.Message) > condition.MaxMessage {
		t.Errorf("status %s, reason %s, generation %d, %d bytes", c.Status, c.Reason, c.ObservedGeneration, len(c.Message))
	}
}

func TestEventsFor(t *testing.T) {
	with := func(conditions ...metav1.Condition) *workv1.ManifestWorkStatus {
		return &workv1.ManifestWorkStatus{Conditions: conditions}
	}
	delivered := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: workv1.WorkDelivered, Status: status, Reason: reason, Message: "m"}
	}
	away, answered := delivered(metav1.ConditionFalse, workv1.ReasonClusterAway), delivered(metav1.ConditionTrue, workv1.ReasonAnswered)
	failed := with(metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: workv1.ReasonAppliedManifestWorkFailed})
	failed.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		ResourceMeta: workv1.ManifestResourceMeta{Kind: "Secret", Name: "s"},
		Conditions:   []metav1.Condition{{Type: workv1.ManifestApplied, Status: metav1.ConditionFalse, Message: strings.Repeat("x", 2000)}},
	}}
	for _, c := range []struct {
		name          string
		before, after *workv1.ManifestWorkStatus
		reason, text  string // of the only event, empty: none
	}{
		{"away", with(), with(away), workv1.ReasonClusterAway, "m"},
		{"still away", with(away), with(away), "", ""},
		{"away, and then without a broker", with(away), with(delivered(metav1.ConditionFalse, workv1.ReasonBrokerUnreachable)), workv1.ReasonBrokerUnreachable, "m"},
		{"back", with(away), with(answered), workv1.ReasonAnswered, "m"},
		{"answered at once", with(), with(answered), "", ""},
		{"slow", with(), with(delivered(metav1.ConditionUnknown, workv1.ReasonPublished)), "", ""},
		{"failed", with(conditionOf(workv1.WorkApplied, 1)), failed, workv1.ReasonAppliedManifestWorkFailed, "Secret s: xxx"},
		{"still failed", failed, failed, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := eventsFor(c.before, c.after)
			if c.reason == "" {
				if len(got) > 0 {
					t.Errorf("events %v, want none", got)
				}
				return
			}
			if len(got) != 1 || got[0].reason != c.reason || !strings.HasPrefix(got[0].message, c.text) || len(got[0].message) > maxEvent {
				t.Errorf("events %v, want one with reason %s and message %s", got, c.reason, c.text)
			}
		})
	}
}
