package examples

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/test/kit"
)

// TestTwoWorksShareAnObject: whatever the first one's deleteOption is, the object stays for the
// second one.
func TestTwoWorksShareAnObject(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"Foreground", "Orphan"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.apply("manifestwork/hello-work-demo.yaml", func(spec map[string]any) {
				set(spec, map[string]any{"propagationPolicy": policy}, "deleteOption")
			})
			w.until(first, "is applied", applied, available)
			before := w.exists(deploymentsResource, "hello")

			other := w.place(read(t, "manifestwork/hello-work-demo.yaml"))
			other.SetName("hello-too")
			second := w.create(other, func(spec map[string]any) {
				set(spec, map[string]any{"of": "second"}, "workload", "manifests", 0, "metadata", "labels")
			})
			w.until(second, "is applied", applied, available)
			w.deleted(first)
			owner := w.appliedName(second)
			after := w.object(deploymentsResource, "hello", "is the second work's", func(obj *unstructured.Unstructured) error {
				if got := owners(obj); !slices.Equal(got, []string{owner}) {
					return fmt.Errorf("it is of %v", got)
				}
				return nil
			})
			if after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil || after.GetLabels()["of"] != "second" {
				t.Errorf("the Deployment was %v, is %v", before, after)
			}
			w.until(second, "is applied still", applied, available)
			w.deleted(second)
			w.gone(w.spoke, deploymentsResource, w.target, "hello")
		})
	}
}

// withReplicas gives the first manifest of a work replicas.
func withReplicas(n int64) func(map[string]any) {
	return func(spec map[string]any) { set(spec, n, "workload", "manifests", 0, "spec", "replicas") }
}

func TestServerSideApplyConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.apply("resource-race/server-side-apply.yaml")
	w.until(first, "is applied", applied, available)
	second := w.apply("resource-race/replica-patch.yaml")
	w.until(second, "is applied", applied, available)
	deployment := w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")
	for _, want := range []string{"work-agent Apply", "work-agent-another Apply"} {
		if got := managers(deployment); !slices.Contains(got, want) {
			t.Errorf("fields are owned by %v, not by %s", got, want)
		}
	}

	w.edit(first, withReplicas(2))
	w.until(first, "conflicts", notApplied, available, manifestIs(0, "Applied", "False", "AppliedManifestFailed",
		`Failed to apply manifest: Apply failed with 1 conflict: conflict with "work-agent-another": .spec.replicas`))
	w.until(second, "has its way", applied, available)
	w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")

	// Without the field there is no conflict.
	w.edit(first, func(spec map[string]any) { delete(field(manifest(spec, 0), "spec").(map[string]any), "replicas") })
	w.until(first, "is applied", applied, available)
	w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")
}

func TestCreateOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("resource-race/create-only.yaml", func(spec map[string]any) {
		w.watchField(spec, deploymentsResource, "hello", ".spec.template.spec.containers[0].image")
	})
	w.until(name, "is applied", applied, available, fedBack(0, `seen="quay.io/asmacdo/busybox"`))

	image := func(image string) string {
		return text(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	}
	_, err := w.objects(deploymentsResource).Patch(w.Context(), "hello", "application/json-patch+json", []byte(image("theirs")), metav1.PatchOptions{})
	kit.NoError(t, err)
	w.until(name, "has seen their change", applied, fedBack(0, `seen="theirs"`))
	path := []any{"spec", "template", "spec", "containers", 0, "image"}
	w.edit(name, func(spec map[string]any) { set(manifest(spec, 0), "ours", path...) })
	w.until(name, "leaves the object alone", applied, available, fedBack(0, `seen="theirs"`))
	w.has(deploymentsResource, "hello", "theirs", path...)

	w.remove(deploymentsResource, "hello")
	w.has(deploymentsResource, "hello", "ours", path...)
	w.deleted(name)
	w.gone(w.spoke, deploymentsResource, w.target, "hello")
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *agent.Config) { c.SyncInterval = 100 * time.Millisecond })
	name := w.apply("resource-race/read-only.yaml")
	w.until(name, "misses the object", applied,
		workIs("Available", "False", "ResourcesNotAvailable", "1 of 1 resources are not available"))

	before := w.somebodysDeployment()
	w.until(name, "reads the object", applied, available, fedBack(0, "ReadyReplicas=1 Replicas=1 AvailableReplicas=1"))
	after := w.exists(deploymentsResource, "hello")
	if len(owners(after)) > 0 || slices.ContainsFunc(managers(after), func(m string) bool { return strings.HasPrefix(m, "work-agent") }) {
		t.Errorf("the agent has written: %v", after.Object["metadata"])
	}
	w.deleted(name)
	w.stays(deploymentsResource, before)
}

// somebodysDeployment makes the Deployment of the examples as another actor.
func (w *site) somebodysDeployment() *unstructured.Unstructured {
	w.Helper()
	work := w.place(read(w, "manifestwork/hello-work-demo.yaml"))
	deployment := &unstructured.Unstructured{Object: manifest(work.Object["spec"].(map[string]any), 0)}
	created, err := w.objects(deploymentsResource).Create(w.Context(), deployment, metav1.CreateOptions{FieldManager: "somebody"})
	kit.NoError(w, err)
	return created
}
