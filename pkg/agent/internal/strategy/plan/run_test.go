package plan_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// The Job of a hook's run is left as it is; one of another run is deleted first, if it is this work's.
func TestPlanRun(t *testing.T) {
	m := strategytest.Manifest(t, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"namespace":"ns","name":"j","annotations":{"workwire.dev/hook":"Before"}},"spec":{"a":1}}`)
	m.Run = "new"
	of := func(run string) func(*unstructured.Unstructured) {
		return func(live *unstructured.Unstructured) {
			live.SetAnnotations(map[string]string{workv1.HookSpecAnnotationKey: run})
		}
	}
	orphan := func(hookOf string) func(*unstructured.Unstructured) {
		return func(live *unstructured.Unstructured) {
			of("old")(live)
			live.SetOwnerReferences(nil)
			if hookOf != "" {
				live.SetAnnotations(map[string]string{workv1.HookSpecAnnotationKey: "old", workv1.HookOfAnnotationKey: hookOf})
			}
		}
	}
	observed := *m
	observed.Strategy = workv1.UpdateStrategyTypeReadOnly
	const notMade = "jobs.v1.batch ns/j exists, and this work has not made it: delete it, or give the hook another name"
	now := metav1.Now()
	for name, c := range map[string]struct {
		change   func(*unstructured.Unstructured) // nil: there is no Job
		previous *strategy.Manifest
		digest   string
		want     plan.Verb
		wantErr  string
	}{
		"no Job":            {want: plan.Create},
		"of this run":       {change: of("new"), want: plan.Keep},
		"of another run":    {change: of("old"), want: plan.Recreate},
		"no hook before":    {change: func(*unstructured.Unstructured) {}, want: plan.Recreate},
		"without the label": {change: func(live *unstructured.Unstructured) { of("new")(live); live.SetLabels(nil) }, want: plan.Update},
		"of another run, being deleted": {change: func(live *unstructured.Unstructured) { of("old")(live); live.SetDeletionTimestamp(&now) },
			wantErr: "jobs.v1.batch ns/j is of the hook's former run, and is being deleted"},
		"somebody else's": {change: func(live *unstructured.Unstructured) { live.SetLabels(nil); live.SetOwnerReferences(nil) },
			wantErr: notMade},
		"an orphan of another work":                   {change: orphan(""), wantErr: notMade},
		"an orphan that this work has observed":       {change: orphan(""), previous: &observed, wantErr: notMade},
		"an orphaned hook of another work":            {change: orphan("hub-other"), wantErr: notMade},
		"another work's, after this one's is gone":    {change: orphan("hub-other"), previous: m, digest: "U12345678", wantErr: notMade},
		"an orphaned hook of this work":               {change: orphan(owner.Name), want: plan.Recreate},
		"an orphan of this work":                      {change: orphan(""), previous: m, want: plan.Recreate},
		"an orphan of this work, before the agent":    {change: orphan(""), digest: "U12345678", want: plan.Recreate},
		"somebody else's, a copy of this work's hook": {change: func(live *unstructured.Unstructured) { orphan(owner.Name)(live); live.SetLabels(nil) }, wantErr: notMade},
		"another work's too": {change: func(live *unstructured.Unstructured) {
			live.SetOwnerReferences([]metav1.OwnerReference{owner, ownership.Reference("other", "other-uid")})
		}, wantErr: "jobs.v1.batch ns/j is the hook of another work too, or an object of it: give the hook another name"},
	} {
		t.Run(name, func(t *testing.T) {
			state := plan.State{Owner: owner, AgentHash: agentHash, Live: object.Live{State: object.Absent}, Previous: c.previous, FieldsDigest: c.digest}
			if c.change != nil {
				live := applied(t, m, `"spec":{"a":2}`)
				c.change(live)
				state.Live = object.Live{State: object.Present, Object: live}
			}
			step := plan.Next(m, state)
			if step.Verb != c.want || strategytest.ErrorText(step.Err) != c.wantErr {
				t.Errorf("got %s, %v; want %s", step.Verb, step.Err, c.want)
			}
			if step.Verb == plan.Create || step.Verb == plan.Recreate {
				annotations := step.Object.GetAnnotations()
				if run, work := annotations[workv1.HookSpecAnnotationKey], annotations[workv1.HookOfAnnotationKey]; run != "new" || work != owner.Name {
					t.Errorf("the new Job is of run %q of work %q", run, work)
				}
			}
		})
	}
}

func TestStateOfJob(t *testing.T) {
	for conditions, want := range map[string]plan.JobState{
		``:                                     plan.JobRunning,
		`{"type":"Suspended","status":"True"}`: plan.JobRunning,
		`{"type":"Complete","status":"False"}`: plan.JobRunning,
		`{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}`:               plan.JobComplete,
		`{"type":"FailureTarget","status":"True"},{"type":"Failed","status":"True","message":"too many"}`: plan.JobFailed,
		`1`: plan.JobRunning,
	} {
		got, message := plan.StateOfJob(strategytest.Decode(t, `{"apiVersion":"batch/v1","kind":"Job","status":{"conditions":[`+conditions+`]}}`))
		if got != want || (message == "too many") != (want == plan.JobFailed) {
			t.Errorf("%s: %v, %q", conditions, got, message)
		}
	}
}
