package examples

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/agent"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestStatusTracking(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("manifestwork/hello-work-demo.yaml")
	work := w.until(name, "is applied and available", applied, available, manifestApplied(0),
		manifestIs(0, "Available", "True", "ResourceAvailable", "Resource is available"),
		manifestIs(0, "StatusFeedbackSynced", "True", "NoStatusFeedbackSynced", ""))
	if n := len(work.Status.Conditions); n != 6 { // with Progressing, Degraded, and the hub's Ready
		t.Errorf("%d conditions of the work", n)
	}
	if n := len(work.Status.ResourceStatus.Manifests[0].Conditions); n != 5 {
		t.Errorf("%d conditions of the manifest", n)
	}
	want := workv1.ManifestResourceMeta{
		Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: w.target, Name: "hello",
	}
	if got := work.Status.ResourceStatus.Manifests[0].ResourceMeta; got != want {
		t.Errorf("resourceMeta %+v, want %+v", got, want)
	}
	w.has(deploymentsResource, "hello", "quay.io/asmacdo/busybox", "spec", "template", "spec", "containers", 0, "image")

	// Available means that the object exists: one that can not be applied is not.
	w.edit(name, func(spec map[string]any) {
		w.addManifest(spec, "{apiVersion: v1, kind: ConfigMap, metadata: {name: refused, namespace: NAMESPACE}, data: not a map}")
	})
	w.until(name, "says what is wrong", notApplied, manifestApplied(0), manifestFails(1, "ConfigMap"),
		workIs("Available", "False", "ResourcesNotAvailable", "1 of 2 resources are not available"),
		manifestIs(1, "Available", "False", "ResourceNotAvailable", "Resource is not available"))
}

func TestFieldValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("hello-work-demo.yaml")
	w.until(name, "feeds back", applied, available,
		fedBack(0, `ReadyReplicas=1 Replicas=1 AvailableReplicas=1 isAvailable="True"`),
		manifestIs(0, "StatusFeedbackSynced", "True", "StatusFeedbackSynced", ""))

	w.edit(name, func(spec map[string]any) {
		set(spec, ".metadata.labels", "manifestConfigs", 0, "feedbackRules", 1, "jsonPaths", 0, "path")
		set(spec, map[string]any{"a": "b"}, "workload", "manifests", 0, "metadata", "labels")
	})
	w.until(name, "reports what is no scalar", applied,
		fedBack(0, `ReadyReplicas=1 Replicas=1 AvailableReplicas=1`),
		manifestIs(0, "StatusFeedbackSynced", "False", "StatusFeedbackSyncFailed", "Sync status feedback failed with error "+
			"the type map[string]interface {} of the value for isAvailable is not found"))
}

// TestFeedbackScrapeTypes has an agent that polls every hour: what it reports, it has watched.
func TestFeedbackScrapeTypes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas := func(n int) state {
		return fedBack(0, fmt.Sprintf("ReadyReplicas=%d Replicas=%[1]d AvailableReplicas=%[1]d", n))
	}
	name := w.apply("feedback/watch.yaml")
	w.until(name, "feeds back", applied, available, replicas(1))
	w.patch(deploymentsResource, "hello", `{"spec":{"replicas":2}}`, "scale")
	w.until(name, "follows the cluster", replicas(2))
	w.edit(name, func(spec map[string]any) { set(spec, "Poll", "manifestConfigs", 0, "feedbackScrapeType") })
	w.until(name, "may be switched", applied, replicas(2))
}

// TestWatchOfObjectsOfOthers: an object that the agent does not apply has a watch of its own, up to
// the limit; beyond it the object is polled.
func TestWatchOfObjectsOfOthers(t *testing.T) {
	t.Parallel()
	watch := func(spec map[string]any) { set(spec, "Watch", "manifestConfigs", 0, "feedbackScrapeType") }
	for name, configure := range map[string]func(*agent.Config){
		"watched": func(c *agent.Config) { c.MaxFeedbackWatch = 1 },
		"polled":  func(c *agent.Config) { c.MaxFeedbackWatch, c.SyncInterval = -1, 100*time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, configure)
			w.somebodysDeployment()
			name := w.apply("resource-race/read-only.yaml", watch)
			w.until(name, "feeds back", applied, available, fedBack(0, "ReadyReplicas=1 Replicas=1 AvailableReplicas=1"))
			w.patch(deploymentsResource, "hello", `{"spec":{"replicas":2}}`, "scale")
			w.until(name, "follows the cluster", fedBack(0, "ReadyReplicas=2 Replicas=2 AvailableReplicas=2"))
		})
	}
}

// TestTypesOfValues: integers and strings are in TestFieldValues.
func TestTypesOfValues(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		raw  bool
		want string
	}{"RawFeedbackJsonString": {true, `paused=true selector={"matchLabels":{"app":"hello"}}`}, "without": {false, "paused=true"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *agent.Config) { c.RawFeedback = of.raw })
			work := w.apply("hello-work-demo.yaml", func(spec map[string]any) {
				set(spec, true, "workload", "manifests", 0, "spec", "paused")
				set(spec, []any{map[string]any{"type": "JSONPaths", "jsonPaths": []any{
					map[string]any{"name": "paused", "path": ".spec.paused"}, map[string]any{"name": "selector", "path": ".spec.selector"},
				}}}, "manifestConfigs", 0, "feedbackRules")
			})
			w.until(work, "feeds back", applied, available, fedBack(0, of.want))
		})
	}
}

// TestUnchangedValuesAreNotReported: the status is not written again when an object changes and its
// values do not.
func TestUnchangedValuesAreNotReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *agent.Config) { c.WithoutReadiness = true }) // a Deployment whose annotations change is not ready for a moment
	name := w.apply("hello-work-demo.yaml")
	other := w.applyText(`
apiVersion: work.open-cluster-management.io/v1
kind: ManifestWork
metadata: {name: other}
spec:
  workload:
    manifests:
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: other, namespace: default}
        spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: other, image: other}]}}}
  manifestConfigs:
    - resourceIdentifier: {group: apps, resource: deployments, namespace: default, name: other}
      feedbackRules: [{type: JSONPaths, jsonPaths: [{name: seen, path: .metadata.annotations.a}]}]
`)
	w.until(name, "feeds back", applied, available, fedBack(0, `ReadyReplicas=1 Replicas=1 AvailableReplicas=1 isAvailable="True"`))
	w.until(other, "is applied", applied, available)
	before := w.until(name, "is there").ResourceVersion
	w.patch(deploymentsResource, "hello", `{"metadata":{"annotations":{"a":"b"}}}`)
	// A change that comes later has been reported: this one would have been, too.
	w.patch(deploymentsResource, "other", `{"metadata":{"annotations":{"a":"b"}}}`)
	w.until(other, "has seen the later change", fedBack(0, `seen="b"`))
	if after := w.until(name, "is there"); after.ResourceVersion != before {
		t.Errorf("the work was written: it has %+v", after.Status)
	}
}
