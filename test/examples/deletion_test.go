package examples

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// stays checks, after the deletion of a work, that an object is as it was, and no one's.
func (w *site) stays(resource schema.GroupVersionResource, before *unstructured.Unstructured) {
	w.Helper()
	after := w.get(resource, before.GetName())
	if after == nil || after.GetUID() != before.GetUID() || after.GetDeletionTimestamp() != nil || len(owners(after)) > 0 {
		w.Errorf("%s %s was %v, is %v", resource.Resource, before.GetName(), before, after)
	}
}

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("manifestwork/hello-work-demo.yaml")
	w.until(name, "is applied", applied, available)
	record := w.appliedName(name)
	w.await(w.spoke, appliedWorksResource, "", record, "names the Deployment", func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errors.New("there is none")
		}
		if got := field(obj.Object, "spec", "manifestWorkName"); got != name {
			return fmt.Errorf("it is of %v", got)
		}
		resources, _ := field(obj.Object, "status", "appliedResources").([]any)
		if len(resources) != 1 || field(resources, 0, "resource") != "deployments" || field(resources, 0, "name") != "hello" {
			return fmt.Errorf("it names %v", resources)
		}
		return nil
	})
	if deployment := w.exists(deploymentsResource, "hello"); !slices.Equal(owners(deployment), []string{record}) {
		t.Errorf("the Deployment is of %v", owners(deployment))
	}

	// The deletion waits for objects that something holds.
	w.patch(deploymentsResource, "hello", `{"metadata":{"finalizers":["test.workwire.dev/hold"]}}`)
	w.delete(name)
	w.until(name, "waits", workIs("Deleting", "True", "WorkDeleting",
		"ManifestWork is being deleted; Deployment "+w.target+"/hello waits for its finalizers test.workwire.dev/hold"))
	w.await(w.spoke, appliedWorksResource, "", record, "waits", func(obj *unstructured.Unstructured) error {
		if obj == nil || obj.GetDeletionTimestamp() == nil {
			return fmt.Errorf("it is %v", obj)
		}
		return nil
	})
	w.object(deploymentsResource, "hello", "is being deleted", func(obj *unstructured.Unstructured) error {
		if obj.GetDeletionTimestamp() == nil {
			return errors.New("it is not")
		}
		return nil
	})
	w.patch(deploymentsResource, "hello", `{"metadata":{"finalizers":null}}`)
	w.gone(w.hub, worksResource, w.cluster, name)
	w.gone(w.spoke, appliedWorksResource, "", record)
	w.gone(w.spoke, deploymentsResource, w.target, "hello")
}

func TestOrphan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("delete-options/orphan.yaml")
	w.until(name, "is applied", applied, available)
	deployment := w.exists(deploymentsResource, "hello")
	w.deleted(name)
	w.gone(w.spoke, appliedWorksResource, "", w.appliedName(name))
	w.stays(deploymentsResource, deployment)
}

func TestSelectivelyOrphan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("delete-options/selectively-orphan.yaml")
	w.until(name, "is applied", applied, available)
	service := w.exists(servicesResource, "helloworld")
	if deployment := w.exists(deploymentsResource, "helloworld"); !slices.Equal(owners(deployment), []string{w.appliedName(name)}) {
		t.Errorf("the Deployment is of %v", owners(deployment))
	}
	w.deleted(name)
	w.gone(w.spoke, deploymentsResource, w.target, "helloworld")
	w.stays(servicesResource, service)
}

// TestOrphanAndRemoveAtOnce: what one update both orphans and drops is kept.
func TestOrphanAndRemoveAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("manifestwork/hello-work-demo.yaml")
	w.until(name, "is applied", applied, available)
	deployment := w.exists(deploymentsResource, "hello")
	w.edit(name, func(spec map[string]any) {
		set(spec, []any{}, "workload", "manifests")
		w.addManifest(spec, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: NAMESPACE}}")
		set(spec, map[string]any{"propagationPolicy": "Orphan"}, "deleteOption")
	})
	w.until(name, "is applied", applied, available)
	w.deleted(name)
	w.gone(w.spoke, appliedWorksResource, "", w.appliedName(name))
	w.stays(deploymentsResource, deployment)
}
