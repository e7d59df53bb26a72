package examples

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var jobImage = []any{"spec", "template", "spec", "containers", 0, "image"}

// finished applies a Job and returns when the agent has seen the cluster run it.
func (w *site) finished(file string) (name string) {
	w.Helper()
	name = w.apply(file, func(spec map[string]any) { w.watchField(spec, jobsResource, "pi", ".status.succeeded") })
	w.until(name, "has run", applied, available, fedBack(0, "seen=1"))
	return name
}

// grows makes a change that is allowed, and sees it arrive.
func (w *site) grows(name string) {
	w.Helper()
	w.edit(name, func(spec map[string]any) { set(spec, int64(5), "workload", "manifests", 0, "spec", "backoffLimit") })
	w.has(jobsResource, "pi", int64(5), "spec", "backoffLimit")
	w.until(name, "is applied", applied, available)
}

func TestJobWithoutSelector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.finished("immutable-fields/job.yaml")

	// What the API server has set is no difference, also when the work is applied again.
	w.edit(name, func(spec map[string]any) {
		w.addManifest(spec, "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: NAMESPACE}}")
	})
	w.until(name, "is applied", applied, available, manifestApplied(0), manifestApplied(1))

	w.edit(name, func(spec map[string]any) { set(manifest(spec, 0), "perl:5", jobImage...) })
	w.until(name, "is refused", available, manifestFails(0, `Job.batch "pi" is invalid: spec.template: Invalid value`, "field is immutable"), manifestApplied(1))
	w.has(jobsResource, "pi", "perl:5.34.0", jobImage...)

	w.edit(name, func(spec map[string]any) { set(manifest(spec, 0), "perl:5.34.0", jobImage...) })
	w.until(name, "is applied", applied, available)
	w.grows(name)
}

func TestJobWithSelector(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.finished("immutable-fields/job-with-selector.yaml")
	w.has(jobsResource, "pi", "pi", "spec", "selector", "matchLabels", "job")
	w.grows(name)
}

func TestJobByServerSideApply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.grows(w.finished("immutable-fields/job-server-side-apply.yaml"))
}

// conditionTrue: the object has the condition.
func conditionTrue(kind string) func(*unstructured.Unstructured) error {
	return func(obj *unstructured.Unstructured) error {
		conditions, _ := field(obj.Object, "status", "conditions").([]any)
		for i := range conditions {
			if field(conditions, i, "type") == kind && field(conditions, i, "status") == "True" {
				return nil
			}
		}
		return fmt.Errorf("it has %v", conditions)
	}
}
