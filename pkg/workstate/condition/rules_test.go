package condition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func evaluated(kind string, status metav1.ConditionStatus, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: workv1.ReasonConditionRuleEvaluated, Message: message}
}

// complete is the status of a work of one manifest that was complete.
func complete(generation int64) *workv1.ManifestWorkStatus {
	status := WorkStatus(Input{Generation: generation, Now: earlier, Manifests: []Manifest{{Meta: named(0, "a"), Rules: []string{"Complete"},
		Evaluated: []metav1.Condition{evaluated("Complete", metav1.ConditionTrue, "Job is finished")}}}})
	return &status
}

func TestRuleConditionsOfAManifest(t *testing.T) {
	incomplete := WorkStatus(Input{Generation: 2, Now: earlier, Manifests: []Manifest{{Meta: named(0, "a"),
		Evaluated: []metav1.Condition{evaluated("Complete", metav1.ConditionFalse, "Job is not finished")}}}})
	foreign := complete(2)
	foreign.ResourceStatus.Manifests[0].Conditions[3].Reason = "SomebodySaysSo"
	restored := &workv1.ManifestWorkStatus{ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{{
		ResourceMeta: named(0, "a"),
		Conditions: []metav1.Condition{{Type: "Complete", Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated,
			Message: "Job is finished", LastTransitionTime: earlier}},
	}}}}
	for name, c := range map[string]struct {
		manifest Manifest
		previous *workv1.ManifestWorkStatus
		want     []string // with the transition time when it was carried over
	}{
		"evaluated, in their order": {Manifest{Rules: []string{"B", "A"}, Evaluated: []metav1.Condition{
			evaluated("B", metav1.ConditionTrue, "b"), evaluated("A", metav1.ConditionUnknown, "a")}}, nil,
			[]string{`B=True ConditionRuleEvaluated "b" @3`, `A=Unknown ConditionRuleEvaluated "a" @3`}},
		"gave nothing":       {Manifest{Rules: []string{"B"}}, nil, nil},
		"built in, and none": {Manifest{Evaluated: []metav1.Condition{evaluated("Applied", metav1.ConditionFalse, ""), evaluated("", metav1.ConditionTrue, "")}}, nil, nil},
		"still complete": {Manifest{Evaluated: []metav1.Condition{evaluated("Complete", metav1.ConditionTrue, "other")}}, complete(2),
			[]string{`Complete=True ConditionRuleEvaluated "other" @3 carried`}},
		"not complete any more": {Manifest{Evaluated: []metav1.Condition{evaluated("Complete", metav1.ConditionFalse, "other")}}, complete(2),
			[]string{`Complete=False ConditionRuleEvaluated "other" @3`}},
		"no rule any more": {Manifest{}, complete(2), nil},
		"missing": {Manifest{Presence: Missing, Rules: []string{"B", "A", "B", "Applied", ""}}, nil, []string{
			`B=Unknown ConditionRuleInternalError "The object does not exist" @3`, `A=Unknown ConditionRuleInternalError "The object does not exist" @3`}},
		"unreadable": {Manifest{Presence: Unreadable, ReadError: errors.New("no"), Rules: []string{"B"}}, nil,
			[]string{`B=Unknown ConditionRuleInternalError "The object cannot be read" @3`}},
		"forbidden": {Manifest{Presence: Forbidden, Rules: []string{"B"}, Evaluated: []metav1.Condition{evaluated("B", metav1.ConditionTrue, "b")}}, nil,
			[]string{`B=Unknown ConditionRuleInternalError "The executor may not get the object" @3`}},
		"unresolved": {Manifest{Presence: Unresolved, Rules: []string{"B"}}, nil,
			[]string{`B=Unknown ConditionRuleInternalError "The kind of the object is not known" @3`}},
		"evaluated, but not seen": {Manifest{Presence: Missing, Evaluated: []metav1.Condition{evaluated("B", metav1.ConditionTrue, "")}}, nil, nil},
		"complete and cleaned up": {Manifest{Presence: Missing, Rules: []string{"B", "Complete"}}, complete(2), []string{
			`B=Unknown ConditionRuleInternalError "The object does not exist" @3`, `Complete=True ConditionRuleEvaluated "Job is finished" @3 carried`}},
		"complete and unreadable": {Manifest{Presence: Unreadable, Rules: []string{"Complete"}}, complete(2),
			[]string{`Complete=True ConditionRuleEvaluated "Job is finished" @3 carried`}},
		"complete and forbidden": {Manifest{Presence: Forbidden, Rules: []string{"Complete"}}, complete(2),
			[]string{`Complete=Unknown ConditionRuleInternalError "The executor may not get the object" @3`}},
		"complete and undecided": {Manifest{Presence: Undecided, Rules: []string{"Complete"}}, complete(2),
			[]string{`Complete=Unknown ConditionRuleInternalError "The object cannot be read" @3`}},
		"complete and unresolved": {Manifest{Presence: Unresolved, Rules: []string{"Complete"}}, complete(2),
			[]string{`Complete=True ConditionRuleEvaluated "Job is finished" @3 carried`}},
		"complete before a restart":     {Manifest{Presence: Missing, Rules: []string{"Complete"}}, restored, []string{`Complete=True ConditionRuleEvaluated "Job is finished" @3 carried`}},
		"cleaned up, no rule any more":  {Manifest{Presence: Missing, Rules: []string{"B"}}, complete(2), []string{`B=Unknown ConditionRuleInternalError "The object does not exist" @3`}},
		"was not complete, and missing": {Manifest{Presence: Missing, Rules: []string{"Complete"}}, &incomplete, []string{`Complete=Unknown ConditionRuleInternalError "The object does not exist" @3`}},
		"complete by no rule":           {Manifest{Presence: Missing, Rules: []string{"Complete"}}, foreign, []string{`Complete=Unknown ConditionRuleInternalError "The object does not exist" @3`}},
	} {
		t.Run(name, func(t *testing.T) {
			c.manifest.Meta = named(0, "a")
			status := WorkStatus(Input{Generation: 3, Manifests: []Manifest{c.manifest}, Previous: c.previous, Now: later})
			var got []string
			for _, one := range status.ResourceStatus.Manifests[0].Conditions {
				if BuiltIn(one.Type) {
					continue
				}
				line := lines([]metav1.Condition{one})[0]
				if one.LastTransitionTime == earlier {
					line += " carried"
				} else if one.LastTransitionTime != later {
					t.Errorf("the time of %s is %v", one.Type, one.LastTransitionTime)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			for _, one := range c.want { // the work has the same, by aggregation of one
				kind, _, _ := strings.Cut(one, "=")
				if meta.FindStatusCondition(status.Conditions, kind) == nil {
					t.Errorf("the work has no %s", kind)
				}
			}
			if n := len(status.Conditions); n != 2+len(c.want) {
				t.Errorf("the work has %d conditions", n)
			}
		})
	}
}

// TestCompletionLastsThroughStatuses follows a finished Job that is cleaned up.
func TestCompletionLastsThroughStatuses(t *testing.T) {
	status := *complete(1)
	gone := []Manifest{{Meta: named(0, "a"), Presence: Missing, Rules: []string{"Complete"}}}
	for generation := int64(1); generation <= 3; generation++ {
		status = WorkStatus(Input{Generation: generation, Manifests: gone, Previous: &status, Now: later})
	}
	want := []string{
		`Applied=True AppliedManifestWorkComplete "Apply manifest work complete" @3`,
		`Available=False ResourcesNotAvailable "1 of 1 resources are not available" @3`,
		`Complete=True ConditionRulesAggregated "Job is finished" @3`,
	}
	wantLines(t, want, status.Conditions)
	if at := status.Conditions[2].LastTransitionTime; at != earlier {
		t.Errorf("its time moved to %v", at)
	}
}

func TestFeedbackOfAnObjectThatIsNotSeen(t *testing.T) {
	n := int64(1)
	values := []workv1.FeedbackValue{{Name: "n", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &n}}}
	fine := WorkStatus(Input{Generation: 2, Now: earlier, Manifests: []Manifest{{Meta: named(0, "a"), HasFeedback: true, Values: values}}})
	failed := WorkStatus(Input{Generation: 2, Now: earlier, Manifests: []Manifest{{Meta: named(0, "a"), HasFeedback: true, Values: values, FeedbackError: errors.New("x")}}})
	none := WorkStatus(Input{Generation: 2, Now: earlier, Manifests: []Manifest{{Meta: named(0, "a")}}})
	for name, c := range map[string]struct {
		manifest Manifest
		previous *workv1.ManifestWorkStatus
		want     string
		values   int
		at       metav1.Time
	}{
		"missing":              {Manifest{Presence: Missing, HasFeedback: true}, &fine, "", 0, later},
		"unresolved":           {Manifest{Presence: Unresolved, HasFeedback: true}, &fine, "", 0, later},
		"unreadable":           {Manifest{Presence: Unreadable, HasFeedback: true}, &fine, `StatusFeedbackSynced=True StatusFeedbackSynced "" @0`, 1, earlier},
		"unreadable, failed":   {Manifest{Presence: Unreadable, HasFeedback: true}, &failed, `StatusFeedbackSynced=False StatusFeedbackSyncFailed "Sync status feedback failed with error x" @0`, 1, earlier},
		"forbidden":            {Manifest{Presence: Forbidden, HasFeedback: true, Values: values}, &fine, "", 0, later},
		"undecided":            {Manifest{Presence: Undecided, HasFeedback: true, Values: values}, &fine, "", 0, later},
		"never read":           {Manifest{Presence: Unreadable, HasFeedback: true}, nil, "", 0, later},
		"not asked for now":    {Manifest{Presence: Unreadable}, &fine, `StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`, 0, later},
		"not asked for at all": {Manifest{Presence: Unreadable}, &none, `StatusFeedbackSynced=True NoStatusFeedbackSynced "" @0`, 0, earlier},
	} {
		t.Run(name, func(t *testing.T) {
			c.manifest.Meta = named(0, "a")
			entry := WorkStatus(Input{Generation: 3, Manifests: []Manifest{c.manifest}, Previous: c.previous, Now: later}).ResourceStatus.Manifests[0]
			var got string
			if synced := meta.FindStatusCondition(entry.Conditions, workv1.ManifestStatusFeedbackSynced); synced != nil {
				got = lines([]metav1.Condition{*synced})[0]
				if synced.LastTransitionTime != c.at {
					t.Errorf("its time is %v", synced.LastTransitionTime)
				}
			}
			if got != c.want || len(entry.StatusFeedbacks.Values) != c.values {
				t.Errorf("%s, with %d values", got, len(entry.StatusFeedbacks.Values))
			}
		})
	}
}

func TestOrderInAWork(t *testing.T) {
	rules := []metav1.Condition{evaluated("Progressing", metav1.ConditionTrue, ""), evaluated("Complete", metav1.ConditionTrue, ""), evaluated("Aborted", metav1.ConditionTrue, "")}
	status := WorkStatus(Input{Generation: 3, Manifests: []Manifest{{Evaluated: rules}}, Now: later})
	var got []string
	for _, c := range status.Conditions {
		got = append(got, c.Type)
	}
	if diff := cmp.Diff([]string{"Applied", "Aborted", "Available", "Complete", "Progressing"}, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	for _, c := range status.ResourceStatus.Manifests[0].Conditions {
		got = append(got, c.Type)
	}
	if diff := cmp.Diff([]string{"Applied", "Available", "StatusFeedbackSynced", "Progressing", "Complete", "Aborted"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestAggregation(t *testing.T) {
	const yes, no, unknown = metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown
	of := func(statuses ...metav1.ConditionStatus) []metav1.ConditionStatus { return statuses }
	for _, c := range []struct {
		of                             []metav1.ConditionStatus
		general, progressing, degraded metav1.ConditionStatus
	}{
		{of(yes), yes, yes, yes},
		{of(no), no, no, no},
		{of(unknown), unknown, unknown, unknown},
		{of(yes, yes), yes, yes, yes},
		{of(no, no), no, no, no},
		{of(yes, no), no, yes, yes},
		{of(yes, unknown), unknown, yes, yes},
		{of(unknown, no), no, unknown, unknown},
		{of(yes, unknown, no), no, yes, yes},
	} {
		for kind, want := range map[string]metav1.ConditionStatus{"Complete": c.general, "Progressing": c.progressing, "Degraded": c.degraded} {
			manifests := []Manifest{{Meta: named(0, "without the rule")}}
			for i, status := range c.of {
				manifests = append(manifests, Manifest{Meta: named(int32(i+1), fmt.Sprint(i)), Evaluated: []metav1.Condition{evaluated(kind, status, "message")}})
			}
			message := "message"
			if len(c.of) > 1 {
				message = fmt.Sprintf("Aggregated from %d manifest conditions", len(c.of))
			}
			status := WorkStatus(Input{Generation: 3, Manifests: manifests, Now: later})
			got := meta.FindStatusCondition(status.Conditions, kind)
			if got == nil || got.Status != want || got.Message != message || got.Reason != "ConditionRulesAggregated" || got.ObservedGeneration != 3 {
				t.Errorf("%s of %v is %+v", kind, c.of, got)
			}
		}
	}
}

// TestAggregationAgainstThePlainRule compares with the rules in words: collect, count, decide.
func TestAggregationAgainstThePlainRule(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	kinds := []string{"Complete", "Progressing", "Degraded", "Ready", "Applied", "Available"}
	statuses := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}
	reasons := []string{"ConditionRuleEvaluated", "ConditionRuleExpressionError", "ConditionRuleInternalError", "ConditionRuleInvalid", "Other", ""}
	for range 2000 {
		entries := make([]workv1.ManifestCondition, random.IntN(5))
		for i := range entries {
			for _, kind := range kinds[:random.IntN(len(kinds)+1)] {
				entries[i].Conditions = append(entries[i].Conditions, metav1.Condition{Type: kind, Status: statuses[random.IntN(3)],
					Reason: reasons[random.IntN(len(reasons))], Message: fmt.Sprint(random.IntN(9)), ObservedGeneration: int64(random.IntN(3))})
			}
		}
		generation := int64(random.IntN(3))
		var want []string
		for _, kind := range kinds {
			counts := map[metav1.ConditionStatus]int{}
			message, total := "", 0
			for _, e := range entries {
				for _, c := range e.Conditions {
					if c.Type == kind && c.ObservedGeneration == generation && strings.HasPrefix(c.Reason, "ConditionRule") {
						counts[c.Status]++
						message = c.Message
						total++
					}
				}
			}
			yes, no, unknown := counts[metav1.ConditionTrue], counts[metav1.ConditionFalse], counts[metav1.ConditionUnknown]
			var status metav1.ConditionStatus
			switch anyTrueWins := kind == "Progressing" || kind == "Degraded"; {
			case total == 0:
				continue
			case anyTrueWins && yes > 0, !anyTrueWins && no == 0 && unknown == 0:
				status = metav1.ConditionTrue
			case !anyTrueWins && no > 0, anyTrueWins && unknown == 0:
				status = metav1.ConditionFalse
			default:
				status = metav1.ConditionUnknown
			}
			if total > 1 {
				message = fmt.Sprintf("Aggregated from %d manifest conditions", total)
			}
			want = append(want, fmt.Sprintf("%s=%s ConditionRulesAggregated %q @%d", kind, status, message, generation))
		}
		got := lines(aggregateRules(entries, generation))
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("generation %d of %+v: %s", generation, entries, diff)
		}
	}
}

func TestWasComplete(t *testing.T) {
	entry := func(m workv1.ManifestResourceMeta, status metav1.ConditionStatus, reason string) workv1.ManifestCondition {
		return workv1.ManifestCondition{ResourceMeta: m, Conditions: []metav1.Condition{{Type: "Complete", Status: status, Reason: reason}}}
	}
	status := &workv1.ManifestWorkStatus{ResourceStatus: workv1.ManifestResourceStatus{Manifests: []workv1.ManifestCondition{
		entry(named(0, "done"), metav1.ConditionTrue, "ConditionRuleEvaluated"),
		entry(named(1, "running"), metav1.ConditionFalse, "ConditionRuleEvaluated"),
		entry(named(2, "foreign"), metav1.ConditionTrue, "SomebodySaysSo"),
		{ResourceMeta: named(3, "without")},
		entry(named(4, "twice"), metav1.ConditionTrue, "ConditionRuleEvaluated"),
		entry(named(5, "twice"), metav1.ConditionFalse, "ConditionRuleEvaluated"),
	}}}
	was := WasComplete(status)
	for m, want := range map[workv1.ManifestResourceMeta]bool{
		named(0, "done"): true, named(7, "done"): true, named(1, "running"): false, named(2, "foreign"): false, named(3, "without"): false,
		named(0, "other"): false, named(4, "twice"): true, named(5, "twice"): false, named(6, "twice"): false,
	} {
		if got := was(m); got != want {
			t.Errorf("%d %s: %v", m.Ordinal, m.Name, got)
		}
	}
	if WasComplete(nil)(named(0, "done")) {
		t.Error("complete without a status")
	}
}
