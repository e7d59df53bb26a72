package agent_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
)

// stage changes a work to a spec that is applied at a time.
func (w *fixture) stage(works workclientv1.ManifestWorkInterface, name, at string, manifests ...string) {
	w.Helper()
	w.Change(works, name, func(work *workv1.ManifestWork) {
		work.Spec.Workload = w.work("", manifests...).Spec.Workload
		work.Annotations = map[string]string{workv1.ApplyAtAnnotationKey: at}
	})
}

// A staged spec is applied at its time although the agent restarts and has no connection, and the one before stays until then.
func TestStaged(t *testing.T) {
	w := newWorld(t)
	works, dir := w.source("hub1"), t.TempDir()
	stateful := func(c *agent.Config) { c.StateDir = dir }
	w.agent(stateful)
	w.deploy(works, "web", configMap("web", "1"))
	start := time.Now().Add(8 * time.Second).UTC().Truncate(time.Second)
	w.stage(works, "web", start.Format(time.RFC3339), configMap("web", "2"))
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonStaged, "1 of 1 manifests are not applied yet. Staged until "+start.Format(time.RFC3339))
	w.Memory.Cut(cluster + "-agent")
	w.stop()
	w.agent(stateful)
	w.data("web", "1")
	if now := time.Now(); !now.Before(start) {
		t.Skipf("the machine is too slow: it is %s, and the spec was to be applied at %s", now, start)
	}
	w.data("web", "2")
	if now := time.Now(); now.Before(start) {
		t.Errorf("applied at %s, before %s", now, start)
	}
	w.deleteConfigMap("web") // what is applied is kept as declared
	w.data("web", "2")
	w.Memory.Restore(cluster + "-agent")
	w.Is(works, "web", "Applied=True", "Available=True")
}

// A spec is held, misses its window, and is applied in the next, by changes of the annotation alone.
func TestStagedOtherwise(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("web", "1"))
	w.stage(works, "web", "soon", configMap("web", "2"))
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonInvalidApplyAt,
		`Nothing new is applied: annotation workwire.dev/apply-at is "soon": must be a time such as 2026-11-28T22:00:00Z, two of them as START/END, or Held`)
	at := func(value string) {
		w.Change(works, "web", func(work *workv1.ManifestWork) { work.Annotations[workv1.ApplyAtAnnotationKey] = value })
	}
	at(workv1.ApplyAtHeld)
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonStaged, "Staged until the annotation workwire.dev/apply-at has a time")
	at("2020-01-01T01:00:00+01:00/2020-01-01T01:00:00Z")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWindowMissed, "The window from 2020-01-01T00:00:00Z to 2020-01-01T01:00:00Z was over before the agent had the work as it is now: waits until")
	w.data("web", "1")
	now := time.Now()
	at(workv1.ApplyAt{Start: now.Add(-time.Minute), End: now.Add(time.Hour)}.String())
	w.data("web", "2")
	w.Is(works, "web", "Applied=True", "Available=True")
	at(workv1.ApplyAtHeld) // it has come: what is applied is kept
	w.deleteConfigMap("web")
	w.data("web", "2")
	w.stage(works, "web", workv1.ApplyAtHeld, configMap("web", "3"))
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonStaged, "")
	w.Change(works, "web", func(work *workv1.ManifestWork) { delete(work.Annotations, workv1.ApplyAtAnnotationKey) })
	w.data("web", "3")
	w.remove(works, "web")
	w.noneApplied()
}
