package agent_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclientv1 "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/wirekit"
)

// annotated returns a manifest with an annotation.
func annotated(manifest, key, value string) string {
	return strings.Replace(manifest, "metadata: {", fmt.Sprintf("metadata: {annotations: {%q: %q}, ", key, value), 1)
}

func inWave(wave int, manifest string) string {
	return annotated(manifest, workv1.WaveAnnotationKey, fmt.Sprint(wave))
}

// gated is a Deployment that no node can run until w.admit has named it.
func gated(name string) string {
	return fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: %[1]s, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: %[1]s}},
	template: {metadata: {labels: {app: %[1]s}}, spec: {nodeSelector: {test.workwire.dev/NAMESPACE: %[1]s}, containers: [{name: c, image: "x:1"}]}}}}`, name)
}

// admit has a node run the Deployment gated(name).
func (w *fixture) admit(name string) {
	w.Helper()
	nodes, err := w.cluster.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{Limit: 1})
	kit.NoError(w, err)
	patch := fmt.Sprintf(`{"metadata":{"labels":{"test.workwire.dev/%s":%q}}}`, w.namespace, name)
	_, err = w.cluster.CoreV1().Nodes().Patch(w.Context(), nodes.Items[0].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	kit.NoError(w, err)
}

// hook is a Job that no controller runs, so that w.finish decides what becomes of it.
func hook(when, name string) string {
	return annotated(fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: %s, namespace: NAMESPACE}, spec: {managedBy: test.workwire.dev/nobody,
	template: {spec: {restartPolicy: Never, containers: [{name: c, image: "x:1"}]}}}}`, name), workv1.HookAnnotationKey, when)
}

// job waits for a Job, other than the one with a UID.
func (w *fixture) job(name string, other types.UID) *batchv1.Job {
	w.Helper()
	return kit.Await(w, w.cluster.BatchV1().Jobs(w.namespace), name, "exists", func(j *batchv1.Job) bool { return j != nil && j.UID != other && j.DeletionTimestamp == nil })
}

// finish has a Job complete, or fail with a message.
func (w *fixture) finish(job *batchv1.Job, failure string) {
	w.Helper()
	now := metav1.Now()
	end := func(kind batchv1.JobConditionType) batchv1.JobCondition {
		return batchv1.JobCondition{Type: kind, Status: corev1.ConditionTrue, Reason: "Test", Message: failure, LastTransitionTime: now, LastProbeTime: now}
	}
	status := batchv1.JobStatus{StartTime: &now, UncountedTerminatedPods: &batchv1.UncountedTerminatedPods{}}
	if failure == "" {
		status.CompletionTime, status.Succeeded = &now, 1
		status.Conditions = []batchv1.JobCondition{end(batchv1.JobSuccessCriteriaMet), end(batchv1.JobComplete)}
	} else {
		status.Conditions = []batchv1.JobCondition{end(batchv1.JobFailureTarget), end(batchv1.JobFailed)}
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	kit.NoError(w, err)
	_, err = w.cluster.BatchV1().Jobs(w.namespace).Patch(w.Context(), job.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	kit.NoError(w, err)
}

// tells waits until Applied of a work has a status, a reason and in its message a text.
func (w *fixture) tells(works workclientv1.ManifestWorkInterface, name string, status metav1.ConditionStatus, reason, message string) *workv1.ManifestWork {
	w.Helper()
	return kit.Await(w, works, name, fmt.Sprintf("is Applied=%s %s %q", status, reason, message), func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkApplied)
		return c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, message) && c.ObservedGeneration == work.Generation
	})
}

// waves is a work of three waves, of which the first two become ready by w.admit.
func (w *fixture) waves(value string) []string {
	return []string{
		inWave(2, configMap("last", value)), inWave(-1, gated("first")), gated("second"), configMap("with-second", value), inWave(-1, configMap("with-first", value)),
	}
}

// Objects of a wave come up when those of all lower ones are ready; what waits says for what; and an agent that starts in between goes on, and
// repairs what it has applied, whatever the lower waves are by then.
func TestWaves(t *testing.T) {
	w, works := start(t)
	work := w.work("web", w.waves("1")...)
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	w.data("with-first", "1")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave,
		"3 of 5 manifests are not applied yet. Waits for wave -1: Deployment "+w.namespace+"/first: ")
	got := w.Is(works, "web", "Applied=Unknown", "Available=False", "Progressing=True")
	if c := meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[0].Conditions, workv1.ManifestApplied); c.Status != metav1.ConditionUnknown ||
		c.Reason != workv1.ReasonWaitsForWave || !strings.HasPrefix(c.Message, "Waits for wave -1: Deployment "+w.namespace+"/first: ") {
		t.Errorf("Applied of a manifest of the last wave is %+v", c)
	}
	w.data("with-second", "")

	w.stop()
	w.agent()
	w.admit("first")
	w.data("with-second", "1")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave, "1 of 5 manifests are not applied yet. Waits for wave 0: Deployment "+w.namespace+"/second: ")
	w.data("last", "")

	// The first wave is no longer ready.
	w.stop()
	kit.NoError(t, w.cluster.AppsV1().Deployments(w.namespace).Delete(w.Context(), "first", metav1.DeleteOptions{}))
	w.admit("second")
	w.deleteConfigMap("with-second")
	w.agent()
	w.data("with-second", "1")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave, "Waits for wave -1: Deployment "+w.namespace+"/first: ")
	w.data("last", "")
	w.admit("first")
	w.data("last", "1")
	w.Is(works, "web", "Applied=True", "Available=True", "Progressing=False")

	// Metadata is no new spec.
	w.admit("none")
	w.Change(works, "web", func(work *workv1.ManifestWork) { work.Labels = map[string]string{"a": "b"} })
	w.deleteConfigMap("last")
	w.data("last", "1")

	w.remove(works, "web")
	w.noneApplied()
}

// A new spec goes through the waves again: until then later objects stay as they are, and what the spec has dropped stays too.
func TestWavesOfANewSpec(t *testing.T) {
	w, works := start(t)
	w.admit("gate")
	w.deploy(works, "web", inWave(-1, configMap("before", "1")), gated("gate"), inWave(1, configMap("last", "1")), configMap("dropped", "1"))
	w.change(works, "web", inWave(-1, configMap("before", "2")), strings.Replace(gated("gate"), "NAMESPACE: gate}", "NAMESPACE: nowhere}", 1),
		inWave(1, configMap("last", "2")))
	w.data("before", "2")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave, "1 of 3 manifests are not applied yet. Waits for wave 0: Deployment "+w.namespace+"/gate: ")
	w.data("last", "1")
	w.data("dropped", "1")
	w.change(works, "web", inWave(-1, configMap("before", "3")), gated("gate"), inWave(1, configMap("last", "3")))
	w.data("last", "3")
	w.data("dropped", "")
	w.Is(works, "web", "Applied=True", "Available=True")
	w.remove(works, "web")
	w.noneApplied()
}

// deletions returns the names of the ConfigMaps that the agent has asked to delete, in that order.
func (w *fixture) deletions() (names []string) {
	for _, r := range w.requests.All(kit.On("configmaps"), func(r kit.Request) bool { return r.Verb == "delete" }) {
		names = append(names, r.Name)
	}
	return names
}

// The objects of a deleted work go by their waves, the highest first, also if the agent starts in between. What is orphaned goes its way at once.
func TestWavesOfADeletedWork(t *testing.T) {
	w, works := start(t)
	work := w.work("web", inWave(-1, configMap("first", "1")), inWave(-1, configMap("kept", "1")), configMap("second", "1"), inWave(1, held(configMap("third", "1"))),
		inWave(1, configMap("with-third", "1")))
	work.Spec.DeleteOption = &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeSelectivelyOrphan,
		SelectivelyOrphan: &workv1.SelectivelyOrphan{OrphaningRules: []workv1.OrphaningRule{{Resource: "configmaps", Namespace: w.namespace, Name: "kept"}}}}
	w.Create(works, work)
	w.Is(works, "web", "Applied=True", "Available=True")
	w.Delete(works, "web")
	waits := "ConfigMap " + w.namespace + "/third waits for its finalizers test.workwire.dev/hold; 2 objects of lower waves wait"
	w.deleting(works, "web", waits)
	w.orphaned("kept")
	w.names("web", "first", "second", "third")
	got := w.deletions()
	if slices.Sort(got); !slices.Equal(got, []string{"third", "with-third"}) {
		t.Errorf("deleted at first: %v", got)
	}

	w.stop()
	w.requests.Take()
	w.agent()
	kit.True(t, "the agent has looked", func() bool { return len(w.requests.All(kit.Named("with-third"))) > 0 }) // it looks for what its record names
	w.patch("third", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
	if got := w.deletions(); !slices.Equal(got, []string{"second", "first"}) {
		t.Errorf("deleted after the restart: %v", got)
	}
	w.orphaned("kept")
	w.noneApplied()
}

// So do objects that a spec has dropped, also if it has no waves any more.
func TestWavesOfDroppedObjects(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("a", "1"), inWave(1, held(configMap("b", "1"))), configMap("stays", "1"), inWave(2, configMap("c", "1")))
	w.change(works, "web", configMap("stays", "2"))
	w.names("web", "a", "b", "stays")
	if got := w.deletions(); !slices.Equal(got, []string{"c", "b"}) {
		t.Errorf("deleted at first: %v", got)
	}
	w.stop()
	w.agent()
	for range 2 { // the agent has looked at all once the first repair is done
		w.patch("stays", `{"data":{"k":"theirs"}}`)
		w.data("stays", "2")
	}
	w.data("a", "1")
	w.patch("b", `{"metadata":{"finalizers":null}}`)
	w.names("web", "stays")
	w.data("a", "")
	if got := w.deletions(); !slices.Equal(got, []string{"c", "b", "a"}) {
		t.Errorf("deleted: %v", got)
	}
}

// What holds a deleted work is named also if the spec no longer had it.
func TestDeletionWaitsForADroppedObject(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "web", configMap("f0", "1"), inWave(1, held(configMap("f1", "1"))), inWave(2, configMap("f2", "1")))
	w.change(works, "web", configMap("f0", "2"))
	w.names("web", "f0", "f1")
	w.Delete(works, "web")
	w.deleting(works, "web", "ConfigMap "+w.namespace+"/f1, which the spec no longer has, waits for its finalizers test.workwire.dev/hold; 1 object of lower waves waits")
	w.patch("f1", `{"metadata":{"finalizers":null}}`)
	w.Gone(works, "web")
}

// A manifest whose change is refused holds up the waves after it, and the removal of what the spec has dropped, also while it waits for its next attempt
// and the object of the spec before is ready.
func TestRefusedChangeHoldsUpWaves(t *testing.T) {
	w, works := start(t)
	fixed := func(value string) string {
		return strings.Replace(configMap("fixed", value), ", data:", ", immutable: true, data:", 1)
	}
	w.deploy(works, "web", fixed("1"), configMap("beside", "1"), inWave(1, configMap("last", "1")), configMap("dropped", "1"))
	w.requests.Take()
	w.change(works, "web", fixed("2"), configMap("beside", "2"), inWave(1, configMap("last", "2")))
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "")
	// The next attempt is far enough away for what follows to come first.
	kit.True(t, "the change is requested five times", func() bool {
		return w.requests.Counts(kit.On("configmaps"), func(r kit.Request) bool { return r.Name == "fixed" })["update configmaps"] >= 5
	})
	for range 3 {
		w.patch("beside", `{"data":{"k":"theirs"}}`)
		w.data("beside", "2")
	}
	if order := applied.OrderOf(w.names("web")); order.Opened != 1 {
		t.Errorf("the order is %+v", order)
	}
	w.data("last", "1")
	w.data("dropped", "1")
}

// A manifest whose wave is no number fails, and those of other waves do as they would.
func TestInvalidWave(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.work("web", configMap("a", "1"), annotated(configMap("b", "1"), workv1.WaveAnnotationKey, "first"), inWave(1, configMap("c", "1"))))
	w.data("a", "1")
	got := w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "")
	var messages []string
	for _, m := range got.Status.ResourceStatus.Manifests {
		messages = append(messages, meta.FindStatusCondition(m.Conditions, workv1.ManifestApplied).Message)
	}
	if diff := cmp.Diff([]string{
		"Apply manifest complete",
		`Failed to apply manifest: annotation workwire.dev/wave is "first": it must be an integer, or absent`,
		"Waits for wave 0: ConfigMap " + w.namespace + "/b is not applied",
	}, messages); diff != "" {
		t.Error(diff)
	}
}

// The kind of an object may be defined by an earlier wave.
func TestKindOfAnEarlierWave(t *testing.T) {
	w, works := start(t)
	group := w.namespace + ".example.com"
	w.deploy(works, "web",
		inWave(2, fmt.Sprintf("{apiVersion: %s/v1, kind: Widget, metadata: {name: w, namespace: NAMESPACE}}", group)),
		fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.%[1]s}, spec: {group: %[1]s, scope: Namespaced,
			names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`, group),
		inWave(1, configMap("between", "1")))
	w.remove(works, "web")
}

// An object that is only read holds up the waves after it until it exists.
func TestWaveOfAReadOnlyObject(t *testing.T) {
	w, works := start(t)
	work := w.work("web", configMap("theirs", ""), inWave(1, configMap("ours", "1")))
	work.Spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Namespace: w.namespace, Name: "theirs"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
	}}
	w.Create(works, work)
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave, "Waits for wave 0: ConfigMap "+w.namespace+"/theirs does not exist")
	_, err := w.cluster.CoreV1().ConfigMaps(w.namespace).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	w.data("ours", "1")
	w.Is(works, "web", "Applied=True", "Available=True")
}

// Hooks run once for each spec, also if the agent is killed while one runs, and all else waits for them.
func TestHooks(t *testing.T) {
	w, works := start(t)
	work := w.work("web", configMap("a", "1"), hook(workv1.HookBefore, "migrate"), hook(workv1.HookAfter, "check"))
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	before := w.job("migrate", "")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForHook, "3 of 3 manifests are not applied yet. Waits for a hook: Job "+w.namespace+"/migrate is not complete")
	w.stop()
	w.agent()
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForHook, "migrate")
	w.data("a", "")
	w.finish(before, "")
	w.data("a", "1")
	after := w.job("check", "")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForHook, "1 of 3 manifests are not applied yet. Waits for a hook: Job "+w.namespace+"/check is not complete")
	w.Is(works, "web", "Progressing=True")
	w.stop()
	w.finish(after, "")
	w.agent()
	w.Is(works, "web", "Applied=True", "Available=True", "Progressing=False")
	if w.job("migrate", "").UID != before.UID || w.job("check", "").UID != after.UID {
		t.Error("a hook has run twice")
	}

	// A hook that has run does so no more, whatever becomes of its Job, and its Job is not missed.
	background := metav1.DeletePropagationBackground
	kit.NoError(t, w.cluster.BatchV1().Jobs(w.namespace).Delete(w.Context(), "migrate", metav1.DeleteOptions{PropagationPolicy: &background}))
	w.deleteConfigMap("a")
	w.data("a", "1")
	w.Is(works, "web", "Applied=True", "Available=True")
	if _, err := w.cluster.BatchV1().Jobs(w.namespace).Get(w.Context(), "migrate", metav1.GetOptions{}); err == nil {
		t.Error("a hook that has run was created again")
	}

	w.requests.Take()
	w.change(works, "web", configMap("a", "2"), hook(workv1.HookBefore, "migrate"), hook(workv1.HookAfter, "check"))
	w.finish(w.job("migrate", before.UID), "")
	w.data("a", "2")
	w.finish(w.job("check", after.UID), "")
	w.Is(works, "web", "Applied=True", "Available=True")
	// One Job is created, the other one is tried, deleted and created.
	if diff := cmp.Diff(map[string]int{"create jobs": 3, "delete jobs": 1}, w.requests.Counts(kit.On("jobs"), kit.Request.Writes)); diff != "" {
		t.Error(diff)
	}
	w.remove(works, "web")
	w.noneApplied()
}

// A hook that fails stops the work; deleting its Job runs it again, and so does another spec.
func TestFailedHook(t *testing.T) {
	w, works := start(t)
	work := w.work("web", configMap("a", "1"), hook(workv1.HookBefore, "migrate"))
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	first := w.job("migrate", "")
	w.finish(first, "no database")
	const failed = "The hook has failed: no database. It runs again with the next spec, or when its Job is deleted"
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonHookFailed, "Job "+w.namespace+"/migrate: "+failed)
	w.stop()
	w.agent()
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonHookFailed, failed)
	w.data("a", "")

	background := metav1.DeletePropagationBackground
	kit.NoError(t, w.cluster.BatchV1().Jobs(w.namespace).Delete(w.Context(), "migrate", metav1.DeleteOptions{PropagationPolicy: &background}))
	second := w.job("migrate", first.UID)
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForHook, "")
	w.finish(second, "still none")
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonHookFailed, "still none")

	w.change(works, "web", configMap("a", "2"), hook(workv1.HookBefore, "migrate"))
	w.finish(w.job("migrate", second.UID), "")
	w.data("a", "2")
	w.Is(works, "web", "Applied=True", "Available=True")
}

// A hook runs again for a spec that returns after another one, also if that one has not come to the hook.
func TestHookOfASpecThatReturns(t *testing.T) {
	w, works := start(t)
	w.admit("gate")
	first := []string{configMap("a", "1"), gated("gate"), hook(workv1.HookAfter, "check")}
	w.Create(works, w.work("web", first...))
	before := w.job("check", "")
	w.finish(before, "")
	w.Is(works, "web", "Applied=True", "Available=True")
	w.change(works, "web", configMap("a", "2"), strings.Replace(gated("gate"), "NAMESPACE: gate}", "NAMESPACE: nowhere}", 1), hook(workv1.HookAfter, "check"))
	w.data("a", "2")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForWave, "")
	w.change(works, "web", first...)
	again := w.job("check", before.UID)
	w.stop()
	w.finish(again, "")
	w.agent()
	w.Is(works, "web", "Applied=True", "Available=True")
	if w.job("check", "").UID != again.UID {
		t.Error("the hook has run twice")
	}
}

// A Job that still runs for the spec before is stopped, pods and all, before that of the next one is created.
func TestRunningHookIsReplaced(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.work("web", configMap("a", "1"), hook(workv1.HookBefore, "migrate")))
	first := w.job("migrate", "")
	w.change(works, "web", configMap("a", "2"), hook(workv1.HookBefore, "migrate"))
	second := w.job("migrate", first.UID)
	if second.Annotations[workv1.HookSpecAnnotationKey] == first.Annotations[workv1.HookSpecAnnotationKey] {
		t.Error("both Jobs are of one spec")
	}
	w.finish(second, "")
	w.data("a", "2")
}

// A Job that the work has not made is not deleted for a hook.
func TestHookIsNotAForeignJob(t *testing.T) {
	w, works := start(t)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "migrate"}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "x:1"}}}}}}
	theirs, err := w.cluster.BatchV1().Jobs(w.namespace).Create(w.Context(), job, metav1.CreateOptions{})
	kit.NoError(t, err)
	w.Create(works, w.work("web", configMap("a", "1"), hook(workv1.HookBefore, "migrate")))
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "")
	if w.job("migrate", "").UID != theirs.UID {
		t.Error("the Job was replaced")
	}
	w.data("a", "")
}

// A work without an order makes the requests that it made before; waves cost one more each when they are applied, and none when they are deleted.
func TestRequestsOfAnOrder(t *testing.T) {
	w, works := start(t)
	w.deploy(works, "plain", configMap("a", "1"), inWave(3, configMap("b", "1")))
	w.names("plain", "a", "b")
	w.deploy(works, "other", configMap("c", "1")) // so that all of plain is done
	w.names("other", "c")
	w.requests.Take()
	counts := func(work string) map[string]int {
		w.names(work)
		return w.requests.TakeCounts(kit.Request.Writes, func(r kit.Request) bool { return r.Resource != "leases" && r.Resource != "events" })
	}
	w.deploy(works, "one", inWave(3, configMap("d", "1")), inWave(3, configMap("e", "1")))
	if diff := cmp.Diff(map[string]int{"create appliedmanifestworks": 1, "create configmaps": 2, "patch appliedmanifestworks/status": 1}, counts("one")); diff != "" {
		t.Errorf("one wave: %s", diff)
	}
	w.deploy(works, "two", configMap("f", "1"), inWave(1, configMap("g", "1")))
	if diff := cmp.Diff(map[string]int{"create appliedmanifestworks": 1, "create configmaps": 2, "patch appliedmanifestworks": 2, "patch appliedmanifestworks/status": 1}, counts("two")); diff != "" {
		t.Errorf("two waves: %s", diff)
	}
	order := applied.OrderOf(w.names("two"))
	if order.Opened != 3 || len(order.Spec) != 16 {
		t.Errorf("the AppliedManifestWork has the order %+v", order)
	}
	w.deploy(works, "three", configMap("h", "1"), inWave(1, configMap("i", "1")))
	for _, name := range []string{"plain", "three"} {
		w.names(name)
		w.requests.Take()
		w.remove(works, name)
		if diff := cmp.Diff(map[string]int{"delete appliedmanifestworks": 1, "delete configmaps": 2, "patch appliedmanifestworks": 1},
			w.requests.TakeCounts(notEvent, func(r kit.Request) bool { return r.Resource != "leases" && r.Verb != "watch" && r.Verb != "list" })); diff != "" {
			t.Errorf("deletion of %s: %s", name, diff)
		}
	}
	w.change(works, "two", configMap("f", "2"), configMap("g", "2"))
	w.data("g", "2")
	w.applied("two", "has no order", func(amw *workv1.AppliedManifestWork) error {
		if order := applied.OrderOf(amw); order != (applied.Order{}) {
			return fmt.Errorf("it has %v", order)
		}
		return nil
	})
}

// dependent returns a work that depends on others.
func (w *fixture) dependent(name, on string, manifests ...string) *workv1.ManifestWork {
	work := w.work(name, manifests...)
	work.Annotations = map[string]string{workv1.DependsOnAnnotationKey: on}
	return work
}

// A work is applied when those that it depends on are ready with their newest specs, and says what it waits for.
func TestDependsOn(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.dependent("app", "db, settings", configMap("app", "1")))
	w.tells(works, "app", metav1.ConditionUnknown, workv1.ReasonWaitsForWork,
		"1 of 1 manifests are not applied yet. Waits for work db is not on this cluster; work settings is not on this cluster")
	w.deploy(works, "settings", configMap("settings", "1"))
	w.tells(works, "app", metav1.ConditionUnknown, workv1.ReasonWaitsForWork, "Waits for work db is not on this cluster")
	w.deploy(works, "db", gated("db"))
	w.tells(works, "app", metav1.ConditionUnknown, workv1.ReasonWaitsForWork, "Waits for work db is not ready")
	w.stop()
	w.agent()
	w.data("app", "")
	w.admit("db")
	w.data("app", "1")
	w.Is(works, "app", "Applied=True", "Available=True")

	// What was applied is kept as it is, whatever becomes of what it depends on.
	w.remove(works, "settings")
	w.deleteConfigMap("app")
	w.data("app", "1")

	w.change(works, "app", configMap("app", "2"))
	w.tells(works, "app", metav1.ConditionUnknown, workv1.ReasonWaitsForWork, "Waits for work settings is not on this cluster")
	w.data("app", "1")
	w.Change(works, "app", func(work *workv1.ManifestWork) { work.Annotations[workv1.DependsOnAnnotationKey] = "db" })
	w.data("app", "2")
	w.Is(works, "app", "Applied=True", "Available=True")
	w.Change(works, "app", func(work *workv1.ManifestWork) { work.Annotations[workv1.DependsOnAnnotationKey] = "db; settings" })
	w.tells(works, "app", metav1.ConditionFalse, workv1.ReasonInvalidDependsOn,
		`Nothing new is applied: annotation workwire.dev/depends-on has "db; settings", which no work can have as its name`)
	w.change(works, "app", configMap("app", "3"))
	w.data("app", "2")
	w.Change(works, "app", func(work *workv1.ManifestWork) { work.Annotations[workv1.DependsOnAnnotationKey] = "db" })
	w.data("app", "3")
	w.remove(works, "app")
	w.remove(works, "db")
	w.noneApplied()
}

// Works that depend on each other say so, all of them, until one no longer does.
func TestDependencyCycle(t *testing.T) {
	w, works := start(t)
	w.Create(works, w.dependent("a", "b", configMap("a", "1")))
	w.Create(works, w.dependent("b", "c", configMap("b", "1")))
	w.tells(works, "b", metav1.ConditionUnknown, workv1.ReasonWaitsForWork, "work c is not on this cluster")
	w.Create(works, w.dependent("c", "a", configMap("c", "1")))
	const says = "The work depends on itself, by workwire.dev/depends-on: "
	w.tells(works, "c", metav1.ConditionFalse, workv1.ReasonDependencyCycle, says+"c → a → b → c")
	w.tells(works, "a", metav1.ConditionFalse, workv1.ReasonDependencyCycle, says+"a → b → c → a")
	w.tells(works, "b", metav1.ConditionFalse, workv1.ReasonDependencyCycle, says+"b → c → a → b")
	w.stop()
	w.agent()
	w.tells(works, "a", metav1.ConditionFalse, workv1.ReasonDependencyCycle, says+"a → b → c → a")
	for _, name := range []string{"a", "b", "c"} {
		w.data(name, "")
	}
	w.Change(works, "c", func(work *workv1.ManifestWork) { delete(work.Annotations, workv1.DependsOnAnnotationKey) })
	for _, name := range []string{"a", "b", "c"} {
		w.data(name, "1")
		w.Is(works, name, "Applied=True", "Available=True")
	}
}

// What an executor may not do yet is no failure while its wave waits: an earlier wave may give the right.
func TestWaveOfADeniedExecutor(t *testing.T) {
	w := newWorld(t)
	works := w.source("hub1")
	_, err := w.cluster.CoreV1().ServiceAccounts(w.namespace).Create(w.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "executor1"}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	all := []string{"get", "create", "update", "patch", "delete"}
	w.bind("jobs", rbacv1.PolicyRule{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: all})
	w.agent()
	w.Create(works, w.executed("web", hook(workv1.HookBefore, "migrate"), configMap("a", "1")))
	migrate := w.job("migrate", "")
	w.tells(works, "web", metav1.ConditionUnknown, workv1.ReasonWaitsForHook, "2 of 2 manifests are not applied yet")
	w.finish(migrate, "")
	w.tells(works, "web", metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "")
	w.bind("config", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: all})
	w.Is(works, "web", "Applied=True", "Available=True")
	w.data("a", "1")
}

// A dry run of a spec leaves the Job of a hook alone, and says whether the hook would run again.
func TestDryRunOfAHook(t *testing.T) {
	raw := newWorld(t).rawSource("hub1")
	first := raw.spec("web", "uid-1", 1, hook(workv1.HookBefore, "migrate"))
	raw.send(first, nil)
	job := raw.job("migrate", "")
	for id, c := range map[string]struct {
		bundle *wire.Bundle
		want   wire.DryRunResult
	}{
		"same":    {first.Bundle, wire.DryRunUnchanged},
		"another": {raw.spec("web", "uid-1", 2, hook(workv1.HookBefore, "migrate"), configMap("a", "1")).Bundle, wire.DryRunRecreated},
	} {
		raw.peer.Publish(t, raw.topic, &wire.DryRun{ID: id, Source: "hub1", Cluster: cluster, Work: "web", Bundle: c.bundle}, nil)
		answer := wirekit.Next(t, raw.peer, "answer "+id, func(a *wire.DryRunAnswer) bool { return a.ID == id })
		if answer.Failure != "" || len(answer.Objects) == 0 || answer.Objects[0].Result != c.want {
			t.Errorf("%s: %+v", id, answer)
		}
	}
	if raw.job("migrate", "").UID != job.UID {
		t.Error("the Job was replaced")
	}
}
