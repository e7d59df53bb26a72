package agent_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// completing returns a work whose first manifest, a ConfigMap, is complete if the expression is
// true.
func (w *fixture) completing(name, expression string, manifests ...string) *workv1.ManifestWork {
	work := w.work(name, manifests...)
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: "a"},
		ConditionRules: []workv1.ConditionRule{{
			Condition: workv1.ManifestComplete, Type: workv1.CelConditionExpressionsType, CelExpressions: []string{expression}, Message: "it is as it is",
		}},
	}}
	return work
}

// job is a Job that KWOK finishes.
const job = `{apiVersion: batch/v1, kind: Job, metadata: {name: once, namespace: NAMESPACE}, spec: {backoffLimit: 4, template: {spec: {
	restartPolicy: Never, containers: [{name: c, image: "perl:5.34.0"}]}}}}`

func (w *fixture) jobWork(name string) *workv1.ManifestWork {
	work := w.work(name, job)
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "batch", Resource: "jobs", Namespace: w.namespace, Name: "once"},
		ConditionRules:     []workv1.ConditionRule{{Condition: workv1.ManifestComplete, Type: workv1.WellKnownConditionsType}},
	}}
	return work
}

// deleteJob deletes the Job, as its ttlSecondsAfterFinished would.
func (w *fixture) deleteJob() {
	w.Helper()
	background := metav1.DeletePropagationBackground
	kit.NoError(w, w.cluster.BatchV1().Jobs(w.namespace).Delete(w.Context(), "once", metav1.DeleteOptions{PropagationPolicy: &background}))
}

// A Job that was cleaned up after it finished is not created again: not at once, not with a new
// spec, and not after a restart of the agent without state.
func TestCompletedJobStaysGone(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.jobWork("web"))
	work := w.Is(works, "web", "Applied=True", "Complete=True")
	c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	if c.Message != "Job is finished" || c.Reason != workv1.ReasonConditionRulesAggregated {
		t.Errorf("the work's condition is %+v", c)
	}
	w.deleteJob()
	work = w.Is(works, "web", "Applied=True", "Available=False", "Complete=True")

	w.Change(works, "web", func(work *workv1.ManifestWork) {
		raw := &work.Spec.Workload.Manifests[0].Raw
		*raw = []byte(strings.Replace(string(*raw), "perl:5.34.0", "perl:5.36.0", 1))
	})
	again := w.Is(works, "web", "Applied=True", "Available=False", "Complete=True")
	if again.Generation == work.Generation {
		t.Fatal("the work was not changed")
	}
	since := w.backdate("web", workv1.WorkComplete)
	w.agent()
	kit.Eventually(w, "Complete is as old as it was", func() error {
		work, err := works.Get(w.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
		if c == nil || !c.LastTransitionTime.Equal(&since) || c.Status != metav1.ConditionTrue || c.Message != "Job is finished" {
			return fmt.Errorf("it is %+v, not of %v", c, since)
		}
		return nil
	})
	if _, err := w.cluster.BatchV1().Jobs(w.namespace).Get(w.Context(), "once", metav1.GetOptions{}); err == nil {
		t.Error("the Job came back")
	}
}

// backdate stops the agent and moves the transition times in an AppliedManifestWork back by an
// hour, so that an agent which does not read them is noticed. It returns the new time.
func (w *fixture) backdate(work string, kind string) metav1.Time {
	w.Helper()
	var status *workv1.ManifestWorkStatus
	amw := w.applied(work, "has condition "+kind, func(amw *workv1.AppliedManifestWork) (err error) {
		if status, err = applied.DecodeTransitions(amw.Status.Transitions); err != nil {
			return err
		}
		if meta.FindStatusCondition(status.Conditions, kind) == nil {
			return fmt.Errorf("it has %q", amw.Status.Transitions)
		}
		return nil
	})
	w.stop()
	past := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = past
	}
	for i := range status.ResourceStatus.Manifests {
		for j := range status.ResourceStatus.Manifests[i].Conditions {
			status.ResourceStatus.Manifests[i].Conditions[j].LastTransitionTime = past
		}
	}
	var err error
	if amw.Status.Transitions, err = applied.EncodeTransitions(status, ""); err != nil {
		w.Fatal(err)
	}
	if _, err := w.amws.UpdateStatus(w.Context(), amw, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
	return past
}

// Transition times survive a restart without a state directory.
func TestTransitionTimesSurviveARestart(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"), configMap("b", "1"))
	past := w.backdate("web", workv1.WorkApplied)
	w.change(works, "web", configMap("a", "2"), configMap("new", "1"))
	w.agent()
	work := w.Is(works, "web", "Applied=True", "Available=True")
	for _, c := range work.Status.Conditions {
		if !c.LastTransitionTime.Equal(&past) {
			t.Errorf("the work's %s is of %v, want %v", c.Type, c.LastTransitionTime, past)
		}
	}
	for i, old := range []bool{true, false} {
		for _, c := range work.Status.ResourceStatus.Manifests[i].Conditions {
			if c.LastTransitionTime.Equal(&past) != old {
				t.Errorf("manifest %d: %s is of %v; before the restart it was %v", i, c.Type, c.LastTransitionTime, past)
			}
		}
	}
}

// A complete work is not updated, not repaired, and its dropped objects are not removed. The
// pending spec is applied once the rule is removed.
func TestRemovingACompleteRuleAppliesThePendingSpec(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.completing("web", "true", configMap("a", "1"), configMap("b", "1")))
	w.Is(works, "web", "Applied=True", "Complete=True")
	w.change(works, "web", configMap("a", "2"), configMap("c", "1"))
	w.Is(works, "web", "Applied=True", "Available=False", "Complete=True")
	for name, want := range map[string]string{"a": "1", "b": "1"} {
		w.data(name, want)
	}
	w.Change(works, "web", func(work *workv1.ManifestWork) { work.Spec.ManifestConfigs = nil })
	w.data("a", "2")
	w.data("b", "")
	w.data("c", "1")
	work := w.Is(works, "web", "Applied=True", "Available=True")
	if c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete); c != nil {
		t.Errorf("the work still has %+v", c)
	}
}

// The pending spec is applied once the rule turns false.
func TestCompletionThatTurnsFalse(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.completing("web", `!has(object.metadata.annotations)`, configMap("a", "1")))
	w.Is(works, "web", "Applied=True", "Complete=True")
	w.change(works, "web", configMap("a", "2"))
	w.Is(works, "web", "Applied=True", "Complete=True")
	w.data("a", "1")
	w.patch("a", `{"metadata":{"annotations":{"reopened":"yes"}}}`)
	w.data("a", "2")
	w.Is(works, "web", "Applied=True", "Complete=False")
}

// While one manifest with a rule is incomplete, only the complete ones are skipped.
func TestMixedCompletion(t *testing.T) {
	w, works := start(t)
	mixed := w.completing("web", "true", configMap("a", "1"), configMap("b", "1"))
	rest := *mixed.Spec.ManifestConfigs[0].DeepCopy()
	rest.ResourceIdentifier.Name, rest.ConditionRules[0].CelExpressions = "b", []string{"false"}
	mixed.Spec.ManifestConfigs = append(mixed.Spec.ManifestConfigs, rest)
	w.Create(works, mixed)
	w.Is(works, "web", "Applied=True", "Complete=False")
	w.change(works, "web", configMap("a", "2"), configMap("b", "2"))
	w.data("b", "2")
	w.Is(works, "web", "Applied=True", "Complete=False")
	w.data("a", "1")
	w.deleteConfigMap("a")
	w.Is(works, "web", "Applied=True", "Available=False", "Complete=False")
	w.data("a", "")
}

// A new work is applied although its Job is there and finished: another work's, which may be deleted.
func TestNewWorkOfACompletedJob(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.jobWork("one"))
	w.Is(works, "one", "Applied=True", "Complete=True")
	two := w.jobWork("two")
	two.Spec.Workload.Manifests = append(two.Spec.Workload.Manifests, w.work("", configMap("b", "1")).Spec.Workload.Manifests...)
	w.Create(works, two)
	w.data("b", "1")
	w.Is(works, "two", "Applied=True", "Available=True", "Complete=True")
	w.names("two", "b", "once")
	w.remove(works, "one")
	w.Is(works, "two", "Applied=True", "Available=True", "Complete=True")
	if _, err := w.cluster.BatchV1().Jobs(w.namespace).Get(w.Context(), "once", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// The same where the work has to wait first.
func TestWaitingWorkOfACompletedJob(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.jobWork("one"))
	w.Is(works, "one", "Applied=True", "Complete=True")
	two := w.jobWork("two")
	two.Annotations = map[string]string{workv1.DependsOnAnnotationKey: "gate"}
	w.Create(works, two)
	w.Is(works, "two", "Applied=Unknown", "Complete=Unknown")
	w.deploy(works, "gate", configMap("g", "1"))
	w.Is(works, "two", "Applied=True", "Available=True", "Complete=True")
	w.names("two", "once")
	w.remove(works, "one")
	w.Is(works, "two", "Applied=True", "Available=True", "Complete=True")
	if _, err := w.cluster.BatchV1().Jobs(w.namespace).Get(w.Context(), "once", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A spec with a rule that its object meets already is applied, and complete then.
func TestRuleThatIsMetAlready(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"))
	w.Change(works, "web", func(work *workv1.ManifestWork) {
		work.Spec = w.completing("web", "true", configMap("a", "1"), configMap("b", "1")).Spec
	})
	w.data("b", "1")
	w.Is(works, "web", "Applied=True", "Available=True", "Complete=True")
	w.change(works, "web", configMap("a", "2"), configMap("b", "2"))
	w.Is(works, "web", "Applied=True", "Complete=True")
	w.data("a", "1")
	w.data("b", "1")
}

// A rule must not have the name of a condition that the agent sets.
func TestRuleNamedApplied(t *testing.T) {
	w, works := start(t)
	work := w.completing("web", "false", configMap("a", "1"))
	work.Spec.ManifestConfigs[0].ConditionRules[0].Condition = workv1.ManifestApplied
	w.Create(works, work)
	w.manifestSays(works, "web", 0, "Applied")
	got := w.Is(works, "web", "Applied=False")
	if n := len(got.Status.ResourceStatus.Manifests[0].Conditions); n > 3 {
		t.Errorf("%d conditions: %+v", n, got.Status.ResourceStatus.Manifests[0].Conditions)
	}
}
