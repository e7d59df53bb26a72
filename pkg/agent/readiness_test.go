package agent_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// unschedulable is a Deployment that no node can run, and schedulable the same one without that.
const (
	schedulable   = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: app, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: "perl:5.34.0"}]}}}}`
	unschedulable = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: app, namespace: NAMESPACE}, spec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a}}, spec: {nodeSelector: {disk: none}, containers: [{name: c, image: "perl:5.34.0"}]}}}}`
)

// A work with the annotation says whether its objects are ready, without a rule: a Deployment whose
// pods have no node is not, although it is applied and exists.
func TestReadiness(t *testing.T) {
	w, works := start(t)
	work := w.work("web", unschedulable, configMap("a", "1"))
	work.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: "true"}
	w.Create(works, work)
	got := w.Is(works, "web", "Applied=True", "Available=True", "Progressing=True", "Degraded=False")
	if c := meta.FindStatusCondition(got.Status.ResourceStatus.Manifests[1].Conditions, workv1.ManifestProgressing); c != nil {
		t.Errorf("a ConfigMap is %+v", c)
	}
	kit.Await(w, works, "web", "says how many are available", func(work *workv1.ManifestWork) bool {
		c := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkProgressing)
		return c != nil && strings.HasPrefix(c.Message, "Available: 0/1")
	})

	w.Change(works, "web", func(work *workv1.ManifestWork) {
		work.Spec.Workload.Manifests = w.work("web", schedulable, configMap("a", "1")).Spec.Workload.Manifests
	})
	w.Is(works, "web", "Applied=True", "Available=True", "Progressing=False", "Degraded=False")

	w.Change(works, "web", func(work *workv1.ManifestWork) { delete(work.Annotations, workv1.ReportReadinessAnnotationKey) })
	kit.Await(w, works, "web", "says nothing of readiness", func(work *workv1.ManifestWork) bool {
		return meta.FindStatusCondition(work.Status.Conditions, workv1.WorkProgressing) == nil && meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkApplied)
	})
	w.Delete(works, "web")
	w.Gone(works, "web")
}
