package condition

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var (
	earlier = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	later   = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
)

func named(ordinal int32, name string) workv1.ManifestResourceMeta {
	return workv1.ManifestResourceMeta{Ordinal: ordinal, Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespace: "default", Name: name}
}

// lines returns conditions as type=status reason "message" @generation.
func lines(conditions []metav1.Condition) []string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s %s %q @%d", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration))
	}
	return out
}

func wantLines(t *testing.T, want []string, conditions []metav1.Condition) {
	t.Helper()
	if diff := cmp.Diff(want, lines(conditions)); diff != "" {
		t.Error(diff)
	}
}

func TestManifestConditions(t *testing.T) {
	appliedOK := `Applied=True AppliedManifestComplete "Apply manifest complete" @3`
	availableOK := `Available=True ResourceAvailable "Resource is available" @0`
	for name, c := range map[string]struct {
		manifest Manifest
		want     []string
	}{
		"fine":     {Manifest{}, []string{appliedOK, availableOK, `StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
		"fed back": {Manifest{HasFeedback: true}, []string{appliedOK, availableOK, `StatusFeedbackSynced=True StatusFeedbackSynced "" @0`}},
		"feedback failed": {Manifest{HasFeedback: true, FeedbackError: errors.New("[a, b]")},
			[]string{appliedOK, availableOK, `StatusFeedbackSynced=False StatusFeedbackSyncFailed "Sync status feedback failed with error [a, b]" @0`}},
		"missing": {Manifest{Presence: Missing}, []string{appliedOK, `Available=False ResourceNotAvailable "Resource is not available" @0`}},
		"unreadable": {Manifest{Presence: Unreadable, ReadError: errors.New("no")},
			[]string{appliedOK, `Available=Unknown FetchingResourceFailed "Failed to fetch resource: no" @0`}},
		"forbidden": {Manifest{Presence: Forbidden, ApplyError: errors.New("denied")}, []string{
			`Applied=False AppliedManifestFailed "Failed to apply manifest: denied" @3`,
			`Available=False ResourceNotAvailable "Resource is not available" @0`}},
		"undecided": {Manifest{Presence: Undecided, ApplyError: errors.New("no answer"), ReadError: errors.New("no answer")}, []string{
			`Applied=False AppliedManifestFailed "Failed to apply manifest: no answer" @3`,
			`Available=Unknown FetchingResourceFailed "Failed to fetch resource: no answer" @0`}},
		"unknown kind": {Manifest{Presence: Unresolved, ApplyError: errors.New(`the server doesn't have a resource type "Widget"`)}, []string{
			`Applied=False AppliedManifestFailed "Failed to apply manifest: the server doesn't have a resource type \"Widget\"" @3`,
			`Available=Unknown IncompleteResourceMeta "Resource meta is incomplete" @0`}},
		"ignoreFields": {Manifest{ApplyError: errors.New("no"), IgnoreFields: true}, []string{
			`Applied=False AppliedManifestSSAIgnoreFieldError "Failed to process ignoreFields: no" @3`, availableOK,
			`StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
		"flapping": {Manifest{Flapping: "who undoes what", Warnings: []string{"unknown field"}}, []string{`Applied=False Flapping "who undoes what" @3`, availableOK,
			`StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
		"waiting": {Manifest{Presence: Missing, Waiting: &Waiting{workv1.ReasonWaitsForWave, "Waits for wave 0"}}, []string{
			`Applied=Unknown WaitsForWave "Waits for wave 0" @3`, `Available=False ResourceNotAvailable "Resource is not available" @0`}},
		"waiting, and invalid": {Manifest{Presence: Missing, ApplyError: errors.New("no"), Waiting: &Waiting{workv1.ReasonWaitsForWave, "Waits for wave 0"}}, []string{
			`Applied=False AppliedManifestFailed "Failed to apply manifest: no" @3`, `Available=False ResourceNotAvailable "Resource is not available" @0`}},
		"hook failed": {Manifest{Waiting: &Waiting{workv1.ReasonHookFailed, "The hook has failed"}}, []string{
			`Applied=False HookFailed "The hook has failed" @3`, availableOK, `StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
		"hook has run": {Manifest{Presence: Missing, HasRun: true}, []string{appliedOK, `Available=True ResourceAvailable "The hook has run, and its Job is gone" @0`}},
		"failed, and flapped": {Manifest{ApplyError: errors.New("no"), Flapping: "who"}, []string{`Applied=False AppliedManifestFailed "Failed to apply manifest: no" @3`, availableOK,
			`StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
		"failed but there": {Manifest{ApplyError: errors.New("conflict")}, []string{
			`Applied=False AppliedManifestFailed "Failed to apply manifest: conflict" @3`, availableOK,
			`StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`}},
	} {
		t.Run(name, func(t *testing.T) {
			status := WorkStatus(Input{Generation: 3, Manifests: []Manifest{c.manifest}, Now: later})
			wantLines(t, c.want, status.ResourceStatus.Manifests[0].Conditions)
		})
	}
}

func TestWorkConditions(t *testing.T) {
	fine, missing, unknown := Manifest{}, Manifest{Presence: Missing}, Manifest{Presence: Unresolved}
	failed, flapping := Manifest{ApplyError: errors.New("no")}, Manifest{Flapping: "who undoes what"}
	waiting := Manifest{Presence: Missing, Waiting: &Waiting{workv1.ReasonWaitsForWave, "Waits for wave 0"}}
	hook := Manifest{Meta: named(1, "migrate"), Waiting: &Waiting{workv1.ReasonHookFailed, "The hook has failed"}}
	appliedOK := `Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @3`
	for name, c := range map[string]struct {
		manifests []Manifest
		want      []string
	}{
		"fine":    {[]Manifest{fine, fine}, []string{appliedOK, `Available=True ResourcesAvailable "All resources are available" @3`}},
		"missing": {[]Manifest{fine, missing, unknown}, []string{appliedOK, `Available=False ResourcesNotAvailable "1 of 3 resources are not available" @3`}},
		"unknown": {[]Manifest{fine, unknown}, []string{appliedOK, `Available=Unknown ResourcesStatusUnknown "1 of 2 resources have unknown status" @3`}},
		"failed": {[]Manifest{fine, failed}, []string{`Applied=False AppliedManifestWorkFailed "Failed to apply manifest work" @3`,
			`Available=True ResourcesAvailable "All resources are available" @3`}},
		"flapping": {[]Manifest{fine, flapping}, []string{`Applied=False Flapping "Others undo again and again what was applied; see Applied of 1 of 2 manifests" @3`,
			`Available=True ResourcesAvailable "All resources are available" @3`}},
		"failed and flapping": {[]Manifest{failed, flapping}, []string{`Applied=False AppliedManifestWorkFailed "Failed to apply manifest work" @3`,
			`Available=True ResourcesAvailable "All resources are available" @3`}},
		"waiting": {[]Manifest{fine, waiting, waiting}, []string{`Applied=Unknown WaitsForWave "2 of 3 manifests are not applied yet. Waits for wave 0" @3`,
			`Available=False ResourcesNotAvailable "2 of 3 resources are not available" @3`}},
		"waiting and failed": {[]Manifest{failed, waiting}, []string{`Applied=False AppliedManifestWorkFailed "Failed to apply manifest work" @3`,
			`Available=False ResourcesNotAvailable "1 of 2 resources are not available" @3`}},
		"waiting for a hook that has failed": {[]Manifest{waiting, hook, failed}, []string{`Applied=False HookFailed "ConfigMap default/migrate: The hook has failed" @3`,
			`Available=False ResourcesNotAvailable "1 of 3 resources are not available" @3`}},
		"none": {nil, []string{appliedOK, `Available=Unknown ResourcesStatusUnknown "cannot get any available resource " @3`}},
	} {
		t.Run(name, func(t *testing.T) {
			status := WorkStatus(Input{Generation: 3, Manifests: c.manifests, Now: later})
			wantLines(t, c.want, status.Conditions)
		})
	}
}

// A work of which a manifest waits is neither ready nor complete, although the objects that it has are.
func TestWaitingIsProgressing(t *testing.T) {
	rule := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: workv1.ReasonConditionRuleEvaluated, Message: "of the object"}
	}
	of := func(conditions ...metav1.Condition) Manifest { return Manifest{Evaluated: conditions} }
	waiting := &Waiting{workv1.ReasonWaitsForWave, "Waits for wave 0"}
	for name, c := range map[string]struct {
		in   Input
		want []string // without Applied and Available
	}{
		"nothing is reported": {in: Input{Manifests: []Manifest{{Waiting: waiting}}}},
		"readiness is reported": {Input{Readiness: true, Manifests: []Manifest{{Waiting: waiting}, {}}}, []string{
			`Progressing=True WaitsForWave "Waits for wave 0" @3`}},
		"the objects are ready": {Input{Manifests: []Manifest{{Waiting: waiting}, of(rule("Progressing", "False"))}}, []string{
			`Progressing=True WaitsForWave "Waits for wave 0" @3`}},
		"the objects are not ready": {Input{Manifests: []Manifest{{Waiting: waiting}, of(rule("Progressing", "True"))}}, []string{
			`Progressing=True ConditionRulesAggregated "of the object" @3`}},
		"the objects are complete": {Input{Manifests: []Manifest{{Waiting: waiting}, of(rule("Complete", "True"))}}, []string{
			`Complete=False WaitsForWave "Waits for wave 0" @3`}},
		"nothing waits": {Input{Manifests: []Manifest{{}, of(rule("Complete", "True"))}}, []string{
			`Complete=True ConditionRulesAggregated "of the object" @3`}},
	} {
		t.Run(name, func(t *testing.T) {
			c.in.Generation, c.in.Now = 3, later
			var got []metav1.Condition
			for _, condition := range WorkStatus(c.in).Conditions {
				if condition.Type != workv1.WorkApplied && condition.Type != workv1.WorkAvailable {
					got = append(got, condition)
				}
			}
			wantLines(t, c.want, got)
		})
	}
}

func TestTimesAreCarriedOver(t *testing.T) {
	value := func(n int64) []workv1.FeedbackValue {
		return []workv1.FeedbackValue{{Name: "n", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &n}}}
	}
	manifests := func(n int64) []Manifest {
		return []Manifest{{Meta: named(0, "a"), HasFeedback: true, Values: value(n)}, {Meta: named(1, "b")}}
	}
	first := WorkStatus(Input{Generation: 1, Manifests: manifests(1), Now: earlier})
	same := WorkStatus(Input{Generation: 1, Manifests: manifests(1), Previous: &first, Now: later})
	if diff := cmp.Diff(first, same); diff != "" {
		t.Errorf("nothing happened, but the status differs: %s", diff)
	}
	at := func(status workv1.ManifestWorkStatus, i int, kind string) metav1.Time {
		return meta.FindStatusCondition(status.ResourceStatus.Manifests[i].Conditions, kind).LastTransitionTime
	}
	changed := WorkStatus(Input{Generation: 2, Manifests: manifests(2), Previous: &first, Now: later})
	if got := at(changed, 0, workv1.ManifestStatusFeedbackSynced); got != later {
		t.Errorf("values changed, but the condition's time is %v", got)
	}
	if got := at(changed, 0, workv1.ManifestApplied); got != earlier {
		t.Errorf("a new generation moved the time of Applied to %v although its status is the same", got)
	}
	swapped := WorkStatus(Input{Generation: 2, Manifests: []Manifest{{Meta: named(0, "b")}, {Meta: named(1, "c")}}, Previous: &first, Now: later})
	if got := at(swapped, 0, workv1.ManifestApplied); got != earlier {
		t.Errorf("a manifest that moved lost its time: %v", got)
	}
	if got := at(swapped, 1, workv1.ManifestApplied); got != later {
		t.Errorf("a new manifest has the time %v", got)
	}
}

func TestDeletion(t *testing.T) {
	status := WorkStatus(Input{Generation: 4, Manifests: []Manifest{{Presence: Missing}}, Now: earlier})
	status = DeletingStatus(status, 4, func(workv1.ManifestResourceMeta) Presence { return Missing }, earlier)
	status = WithDeleted(status, "cluster1", later)
	want := []string{
		`Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @4`,
		`Available=False ResourcesNotAvailable "1 of 1 resources are not available" @4`,
		`Deleting=True WorkDeleting "ManifestWork is being deleted" @4`,
		`Deleted=True ManifestsDeleted "The manifests are deleted from the cluster cluster1" @0`,
	}
	wantLines(t, want, status.Conditions)
}

func TestDeletionHeld(t *testing.T) {
	before := WorkStatus(Input{Generation: 4, Manifests: []Manifest{{Meta: named(0, "a")}}, Now: earlier})
	status := WithDeletionHeld(before, before, 4, workv1.ReasonSourceKnowsTooFew, "why", later)
	want := []string{
		`Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @4`,
		`Available=True ResourcesAvailable "All resources are available" @4`,
		`DeletionHeld=True SourceKnowsTooFew "why" @4`,
	}
	wantLines(t, want, status.Conditions)
	for _, given := range []workv1.ManifestWorkStatus{before, status} { // after a restart, status is the last one known
		again := WithDeletionHeld(given, status, 4, workv1.ReasonSourceKnowsTooFew, "why", metav1.Now())
		if diff := cmp.Diff(status, again); diff != "" {
			t.Errorf("nothing happened, but the status differs: %s", diff)
		}
	}
	present := func(workv1.ManifestResourceMeta) Presence { return Present }
	for _, released := range []workv1.ManifestWorkStatus{DeletingStatus(status, 4, present, later), WithDeleted(status, "cluster1", later)} {
		if meta.FindStatusCondition(released.Conditions, workv1.WorkDeletionHeld) != nil {
			t.Errorf("a released work has %v", released.Conditions)
		}
	}
}

func TestRefusedKeepsWhatIsInForce(t *testing.T) {
	before := WorkStatus(Input{Generation: 1, Manifests: []Manifest{{Meta: named(0, "a")}}, Now: earlier})
	status := InvalidStatus(before, before, 2, "", "manifest 0: not JSON", later)
	want := []string{`Applied=False InvalidManifestWork "manifest 0: not JSON" @2`, `Available=True ResourcesAvailable "All resources are available" @1`}
	wantLines(t, want, status.Conditions)
	if diff := cmp.Diff(before.ResourceStatus, status.ResourceStatus); diff != "" {
		t.Error(diff)
	}
	again := InvalidStatus(before, status, 2, "", "manifest 0: not JSON", metav1.Now())
	if diff := cmp.Diff(status, again); diff != "" {
		t.Errorf("nothing happened, but the status differs: %s", diff)
	}
}

func TestRemovingFollowsTheObjects(t *testing.T) {
	before := WorkStatus(Input{Generation: 1, Manifests: []Manifest{{Meta: named(0, "a")}, {Meta: named(1, "b")}}, Now: earlier})
	status := DeletingStatus(before, 2, func(m workv1.ManifestResourceMeta) Presence {
		if m.Name == "a" {
			return Missing
		}
		return Present
	}, later)
	want := []string{
		`Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @1`,
		`Available=False ResourcesNotAvailable "1 of 2 resources are not available" @2`,
		`Deleting=True WorkDeleting "ManifestWork is being deleted" @2`,
	}
	wantLines(t, want, status.Conditions)
	if before.Conditions[1].Status != metav1.ConditionTrue {
		t.Error("the status before was changed")
	}
}

// A right that is taken away during the deletion removes what the object has contributed.
func TestRemovingWithdrawsWhatIsForbidden(t *testing.T) {
	value := []workv1.FeedbackValue{{Name: "v"}}
	rule := []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated, Message: "secret"}}
	secret := Manifest{Meta: named(0, "a"), HasFeedback: true, Values: value, Rules: []string{"Ready"}, Evaluated: rule}
	before := WorkStatus(Input{Generation: 1, Manifests: []Manifest{secret, {Meta: named(1, "b")}}, Now: earlier})
	forbidden := func(m workv1.ManifestResourceMeta) Presence {
		if m.Name == "a" {
			return Forbidden
		}
		return Present
	}
	status := DeletingStatus(before, 2, forbidden, later)
	wantLines(t, []string{
		`Applied=True AppliedManifestComplete "Apply manifest complete" @1`,
		`Available=False ResourceNotAvailable "Resource is not available" @0`,
		`Ready=Unknown ConditionRuleInternalError "The executor may not get the object" @1`,
	}, status.ResourceStatus.Manifests[0].Conditions)
	wantLines(t, []string{
		`Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @1`,
		`Available=False ResourcesNotAvailable "1 of 2 resources are not available" @2`,
		`Ready=Unknown ConditionRulesAggregated "The executor may not get the object" @1`,
		`Deleting=True WorkDeleting "ManifestWork is being deleted" @2`,
	}, status.Conditions)
	if values := status.ResourceStatus.Manifests[0].StatusFeedbacks.Values; len(values) > 0 {
		t.Errorf("values %v", values)
	}
	if diff := cmp.Diff(status, DeletingStatus(status, 2, forbidden, metav1.Now())); diff != "" {
		t.Errorf("nothing happened, but the status differs: %s", diff)
	}
}

// TestReadiness: Progressing is False of a work whose objects are ready once they exist, once they do.
func TestReadiness(t *testing.T) {
	degraded := []metav1.Condition{{Type: workv1.ManifestDegraded, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated}}
	for name, c := range map[string]struct {
		watched bool
		m       Manifest
		want    bool
	}{
		"there":       {true, Manifest{}, true},
		"not watched": {false, Manifest{}, false},
		"missing":     {true, Manifest{Presence: Missing}, false},
		"unreadable":  {true, Manifest{Presence: Unreadable}, false},
		"degraded":    {true, Manifest{Rules: []string{workv1.ManifestDegraded}, Evaluated: degraded}, false},
	} {
		status := WorkStatus(Input{Generation: 1, Manifests: []Manifest{c.m}, Readiness: c.watched, Now: metav1.Now()})
		if got := meta.IsStatusConditionFalse(status.Conditions, workv1.WorkProgressing); got != c.want {
			t.Errorf("%s: %+v", name, status.Conditions)
		}
	}
}
