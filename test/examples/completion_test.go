package examples

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

var (
	podsResource    = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	customResources = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "mycustomresources"}
)

// complete: manifest i is, and the work as well, which has no other with such a rule.
func complete(i int, message string) state { return ruled(i, "Complete", "True", message) }

// heldBack: of a number of manifests one is complete and has changed since.
func heldBack(of int) state {
	return workIs("Applied", "True", "AppliedManifestWorkComplete", fmt.Sprintf("Apply manifest work complete; warnings: see Applied of 1 of %d manifests", of))
}

// ruled: a rule's condition of manifest i, the only one of its type, and of the work.
func ruled(i int, kind, status, message string) state {
	return func(work *workv1.ManifestWork) error {
		if err := manifestIs(i, kind, status, "ConditionRuleEvaluated", message)(work); err != nil {
			return err
		}
		return workIs(kind, status, "ConditionRulesAggregated", message)(work)
	}
}

func TestJobsComplete(t *testing.T) {
	t.Parallel()
	for file, job := range map[string]string{
		"completion/condition-rules.yaml":       "pi-calculation",
		"completion/well-known-completion.yaml": "my-job",
		"completion/ttl.yaml":                   "my-job",
		"completion/one-time-job.yaml":          "data-migration",
		"completion/temp-job-with-cleanup.yaml": "temp-task",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			work := w.until(w.apply(file), "is complete", applied, available, complete(0, "Job is finished"))
			want := workv1.ManifestResourceMeta{
				Group: "batch", Version: "v1", Kind: "Job", Resource: "jobs", Namespace: w.target, Name: job,
			}
			if got := work.Status.ResourceStatus.Manifests[0].ResourceMeta; got != want {
				t.Errorf("resourceMeta %+v, want %+v", got, want)
			}
		})
	}
}

// TestFinishedWorkIsCollected: after its time to live the work goes, and its Job with it. The file
// says 30 seconds; the test does not wait for that.
func TestFinishedWorkIsCollected(t *testing.T) {
	t.Parallel()
	for file, job := range map[string]string{
		"completion/ttl.yaml":                   "my-job",
		"completion/temp-job-with-cleanup.yaml": "temp-task",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			name := w.apply(file, func(spec map[string]any) { set(spec, int64(1), "deleteOption", "ttlSecondsAfterFinished") })
			w.gone(w.hub, worksResource, w.cluster, name)
			w.gone(w.spoke, jobsResource, w.target, job)
		})
	}
}

// TestFailedJobIsComplete: the Job of this work waits for a pod that may not run, until its time is
// up.
func TestFailedJobIsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("completion/well-known-completion.yaml", func(spec map[string]any) {
		set(spec, int64(0), "workload", "manifests", 0, "spec", "parallelism")
	})
	w.until(name, "is not complete", applied, ruled(0, "Complete", "False", "Job is not finished"))
	w.patch(jobsResource, "my-job", `{"spec":{"activeDeadlineSeconds":1}}`)
	w.until(name, "is complete", complete(0, "Job is finished"))
	w.object(jobsResource, "my-job", "has failed", conditionTrue("Failed"))
}

func TestPodsComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.applyText(`
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: pod}
spec:
  workload:
    manifests:
      - apiVersion: v1
        kind: Pod
        metadata: {name: once, namespace: default}
        spec: {restartPolicy: Never, containers: [{name: once, image: busybox}]}
  manifestConfigs:
    - resourceIdentifier: {resource: pods, namespace: default, name: once}
      conditionRules: [{type: WellKnownConditions, condition: Complete}]
`)
	w.until(name, "runs", applied, available, ruled(0, "Complete", "False", "Pod is in phase Running"))
	w.patch(podsResource, "once", `{"status":{"phase":"Succeeded"}}`, "status")
	w.until(name, "is complete", complete(0, "Pod is in phase Succeeded"))
	w.remove(podsResource, "once")
	w.until(name, "has lost the pod",
		workIs("Available", "False", "ResourcesNotAvailable", "1 of 1 resources are not available"), applied)
}

func TestCompletedJobIsNotRecreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("completion/one-time-job.yaml")
	w.until(name, "is complete", applied, available, complete(0, "Job is finished"))

	// What a TTL does to a Job.
	w.patch(jobsResource, "data-migration", `{"spec":{"ttlSecondsAfterFinished":0}}`)
	w.gone(w.spoke, jobsResource, w.target, "data-migration")
	missing := workIs("Available", "False", "ResourcesNotAvailable", "1 of 1 resources are not available")
	w.until(name, "has lost the Job", applied, missing)

	w.edit(name, func(spec map[string]any) {
		set(spec, int64(2), "workload", "manifests", 0, "spec", "backoffLimit")
	})
	w.until(name, "is complete all the same", applied, missing, observed("Complete"),
		workIs("Complete", "True", "ConditionRulesAggregated", "Job is finished"))
	if w.get(jobsResource, "data-migration") != nil {
		t.Error("the Job was made again")
	}
	w.deleted(name)
}

func TestCompletedJobIsNotUpdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("completion/condition-rules.yaml")
	w.until(name, "is complete", applied, complete(0, "Job is finished"))

	label := func(spec map[string]any) {
		set(spec, map[string]any{"team": "a"}, "workload", "manifests", 0, "metadata", "labels")
	}
	w.edit(name, label)
	w.until(name, "is complete all the same", heldBack(1), available, complete(0, "Job is finished"),
		manifestIs(0, "Applied", "True", "AppliedManifestComplete", "Apply manifest complete; warnings: the change is not applied, because the manifest is complete"))
	if job := w.get(jobsResource, "pi-calculation"); job == nil || job.GetLabels()["team"] != "" {
		t.Errorf("the Job was changed: %v", job)
	}

	// Without the rule nothing keeps the change back any longer.
	w.edit(name, func(spec map[string]any) { delete(spec, "manifestConfigs") })
	w.has(jobsResource, "pi-calculation", "a", "metadata", "labels", "team")
	work := w.until(name, "is applied", applied, available)
	if c := meta.FindStatusCondition(work.Status.Conditions, "Complete"); c != nil {
		t.Errorf("there is still %+v", c)
	}
	w.deleted(name)
	w.gone(w.spoke, jobsResource, w.target, "pi-calculation")
}

func TestMixedCompletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("completion/mixed-completion.yaml")
	mixed := func(work *workv1.ManifestWork) error {
		for _, is := range []state{
			available,
			manifestIs(0, "Complete", "True", "ConditionRuleEvaluated", "Job is finished"),
			manifestIs(1, "Complete", "False", "ConditionRuleEvaluated", "Manifest is not Complete"),
			workIs("Complete", "False", "ConditionRulesAggregated", "Aggregated from 2 manifest conditions"),
		} {
			if err := is(work); err != nil {
				return err
			}
		}
		return nil
	}
	w.until(name, "has one complete manifest", applied, mixed)
	w.edit(name, func(spec map[string]any) {
		set(spec, map[string]any{"team": "a"}, "workload", "manifests", 0, "metadata", "labels")
		set(spec, "changed", "workload", "manifests", 1, "data", "k")
	})
	w.has(configMapsResource, "settings", "changed", "data", "k")
	w.until(name, "goes on", heldBack(2), mixed)
	if job := w.get(jobsResource, "data-migration"); job == nil || job.GetLabels()["team"] != "" {
		t.Errorf("the complete Job was changed: %v", job)
	}
}

func TestCustomResourceCompletes(t *testing.T) {
	t.Parallel()
	for _, final := range []string{"Complete", "Failed"} {
		t.Run(final, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			name := w.apply("completion/cel-expressions.yaml")
			w.until(name, "can not be judged without a status", applied, available,
				manifestIs(0, "Complete", "False", "ConditionRuleExpressionError", "no such key: status"))
			status := func(conditionStatus string) {
				w.patch(customResources, "my-custom-resource",
					text(`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":%q,"status":%q}]}}`, final, conditionStatus), "status")
			}
			status("False")
			w.until(name, "is not complete", ruled(0, "Complete", "False", "Custom resource is not complete"))
			status("True")
			w.until(name, "is complete", complete(0, "Custom resource is complete"))
		})
	}
}

func TestMultipleConditionTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("completion/multiple-conditions.yaml")
	w.until(name, "is there", available)
	w.patch(customResources, "my-resource", `{"status":{"conditions":[{"type":"Initialized","status":"True"}]}}`, "status")
	w.until(name, "is initialized", applied, available,
		ruled(0, "Initialized", "True", "Resource is initialized"), ruled(0, "Complete", "False", "Resource not complete"))
	w.patch(customResources, "my-resource",
		`{"status":{"conditions":[{"type":"Initialized","status":"True"},{"type":"Complete","status":"True"}]}}`, "status")
	w.until(name, "is complete",
		ruled(0, "Initialized", "True", "Resource is initialized"), complete(0, "Resource completed successfully"))
}
