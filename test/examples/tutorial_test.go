package examples

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var serviceAccountsResource = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

func TestPrerequisites(t *testing.T) {
	t.Parallel()
	for _, at := range []struct {
		plane *controlplane.Plane
		kind  string
	}{{hubPlane, "ManifestWork"}, {spokePlane, "AppliedManifestWork"}} {
		list, err := discovery.NewDiscoveryClientForConfigOrDie(at.plane.REST()).ServerResourcesForGroupVersion("work.open-cluster-management.io/v1")
		kit.NoError(t, err)
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == at.kind }) {
			t.Errorf("no %s among %v", at.kind, list.APIResources)
		}
	}
}

// TestTutorial creates, updates and deletes the tutorial's work.
func TestTutorial(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("example-manifestwork.yaml")
	if name != "example-manifestwork" {
		t.Fatalf("the work is %s", name)
	}
	state := []state{applied, available}
	for i := range 2 {
		state = append(state, manifestApplied(i), manifestIs(i, "Available", "True", "ResourceAvailable", "Resource is available"))
	}
	work := w.until(name, "is applied", state...)
	if !slices.Contains(work.Finalizers, "cluster.open-cluster-management.io/manifest-work-cleanup") {
		t.Errorf("the work has finalizers %v", work.Finalizers)
	}
	want := workv1.ManifestResourceMeta{
		Ordinal: 1, Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: w.target, Name: "nginx-deployment",
	}
	if got := work.Status.ResourceStatus.Manifests[1].ResourceMeta; got != want {
		t.Errorf("resourceMeta %+v, want %+v", got, want)
	}
	w.has(deploymentsResource, "nginx-deployment", int64(3), "status", "readyReplicas")
	w.podsRun(3)

	record := w.appliedName(name) // a hash and the name of the work
	amw := w.await(w.spoke, appliedWorksResource, "", record, "names both objects", func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errors.New("there is none")
		}
		if resources, _ := field(obj.Object, "status", "appliedResources").([]any); len(resources) != 2 {
			return fmt.Errorf("it names %v", resources)
		}
		return nil
	})
	if got := amw.GetFinalizers(); !slices.Equal(got, []string{"cluster.open-cluster-management.io/applied-manifest-work-cleanup"}) {
		t.Errorf("the AppliedManifestWork has finalizers %v", got)
	}

	w.edit(name, func(spec map[string]any) {
		set(manifest(spec, 1), int64(2), "spec", "replicas")
		set(manifest(spec, 1), "nginx:1.27", "spec", "template", "spec", "containers", 0, "image")
	})
	w.has(deploymentsResource, "nginx-deployment", "nginx:1.27", "spec", "template", "spec", "containers", 0, "image")
	w.has(deploymentsResource, "nginx-deployment", int64(2), "status", "readyReplicas")
	w.until(name, "is applied", state...)

	// Objects that are slow to go hold the records of them, here and at the hub.
	w.patch(serviceAccountsResource, "my-sa", `{"metadata":{"finalizers":["test.workwire.dev/hold"]}}`)
	w.delete(name)
	w.gone(w.spoke, deploymentsResource, w.target, "nginx-deployment")
	w.until(name, "waits", workIs("Deleting", "True", "WorkDeleting",
		"ManifestWork is being deleted; ServiceAccount "+w.target+"/my-sa waits for its finalizers test.workwire.dev/hold"))
	w.await(w.spoke, appliedWorksResource, "", record, "waits", func(obj *unstructured.Unstructured) error {
		if obj == nil || obj.GetDeletionTimestamp() == nil {
			return fmt.Errorf("it is %v", obj)
		}
		return nil
	})
	w.patch(serviceAccountsResource, "my-sa", `{"metadata":{"finalizers":null}}`)
	w.gone(w.hub, worksResource, w.cluster, name)
	w.gone(w.spoke, appliedWorksResource, "", record)
	w.gone(w.spoke, serviceAccountsResource, w.target, "my-sa")
}

// podsRun checks that there are as many pods of nginx as told, running.
func (w *site) podsRun(want int) {
	w.Helper()
	list, err := w.objects(podsResource).List(w.Context(), metav1.ListOptions{LabelSelector: "app=nginx"})
	kit.NoError(w, err)
	running := 0
	for _, pod := range list.Items {
		if field(pod.Object, "status", "phase") == "Running" {
			running++
		}
	}
	if running != want {
		w.Errorf("%d pods are running, want %d", running, want)
	}
}
