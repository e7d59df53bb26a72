package works

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	agent "github.com/workwire/workwire/pkg/workstate/condition"
)

// TestReady: the sum of the conditions that an agent reports, and of what the hub knows. Stalled is there only if no
// retry helps.
func TestReady(t *testing.T) {
	deployment := workv1.ManifestResourceMeta{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "default", Name: "web"}
	pulls := []metav1.Condition{{Type: workv1.ManifestProgressing, Status: metav1.ConditionTrue, Reason: workv1.ReasonConditionRuleEvaluated,
		Message: "Available: 0/1: Pod web-1: ImagePullBackOff: no such image"}}
	report := func(readiness bool, m agent.Manifest) *workv1.ManifestWorkStatus {
		m.Meta = deployment
		status := agent.WorkStatus(agent.Input{Generation: 2, Manifests: []agent.Manifest{m}, Readiness: readiness, Now: metav1.Now()})
		return &status
	}
	deleting := func(w *workv1.ManifestWork) { w.DeletionTimestamp = new(metav1.Now()) }
	for name, c := range map[string]struct {
		status  *workv1.ManifestWorkStatus
		change  func(*workv1.ManifestWork)
		want    string // status and reason, and Stalled
		message string // its beginning
	}{
		"ready":         {report(true, agent.Manifest{}), nil, "True ObjectsReady", ""},
		"not watched":   {report(false, agent.Manifest{}), nil, "Unknown ReadinessNotWatched", "readiness not watched"},
		"warned":        {report(true, agent.Manifest{Warnings: []string{"unknown field"}}), nil, "True Warning", "Deployment default/web: unknown field"},
		"pulls":         {report(true, agent.Manifest{Rules: []string{workv1.ManifestProgressing}, Evaluated: pulls}), nil, "False ImagePull", "Deployment default/web: Available: 0/1"},
		"not there":     {report(true, agent.Manifest{Presence: agent.Missing}), nil, "False Missing", "Deployment default/web: "},
		"immutable":     {report(true, agent.Manifest{ApplyError: errors.New("spec.selector: field is immutable")}), nil, "False Immutable Stalled", "Deployment default/web: "},
		"forbidden":     {report(true, agent.Manifest{ApplyError: errors.New("it is forbidden")}), nil, "False Forbidden", "Deployment default/web: "},
		"new":           {&workv1.ManifestWorkStatus{}, nil, "False NotAnswered", "The cluster has not answered yet"},
		"being deleted": {report(true, agent.Manifest{}), deleting, "False NotAnswered", ""},
	} {
		work := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: "cluster1", Name: "web", Generation: 2}}
		if c.change != nil {
			c.change(work)
		}
		c.status.Conditions = append(c.status.Conditions, metav1.Condition{Type: workv1.WorkStalled, Status: metav1.ConditionTrue, Reason: "Before", ObservedGeneration: 1})
		setReady(work, c.status, metav1.Now())
		got := meta.FindStatusCondition(c.status.Conditions, workv1.WorkReady)
		is := string(got.Status) + " " + got.Reason
		if s := meta.FindStatusCondition(c.status.Conditions, workv1.WorkStalled); s != nil && s.Status == metav1.ConditionTrue && s.Reason == got.Reason && s.Message == got.Message && s.ObservedGeneration == 2 {
			is += " Stalled"
		} else if s != nil {
			t.Errorf("%s: %+v", name, s)
		}
		if is != c.want || !strings.HasPrefix(got.Message, c.message) || got.ObservedGeneration != 2 ||
			c.status.ObservedGeneration != 2 {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
	}
	rules := []metav1.Condition{
		{Type: workv1.WorkReady, Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRulesAggregated},
		{Type: workv1.WorkStalled, Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRulesAggregated},
	}
	own := &workv1.ManifestWorkStatus{Conditions: slices.Clone(rules)}
	if setReady(&workv1.ManifestWork{}, own, metav1.Now()); !slices.Equal(own.Conditions, rules) {
		t.Errorf("the conditions of rules became %+v", own.Conditions)
	}
}
