package examples

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// await watches an object until check returns nil. It passes nil while the object does not exist.
func (w *site) await(client dynamic.Interface, resource schema.GroupVersionResource, namespace, name, what string,
	check func(*unstructured.Unstructured) error,
) *unstructured.Unstructured {
	w.Helper()
	return kit.AwaitCheck(w, client.Resource(resource).Namespace(namespace), name, resource.Resource+" "+what, check)
}

// object waits for an object of the test's namespace on the cluster.
func (w *site) object(resource schema.GroupVersionResource, name, what string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	w.Helper()
	return w.await(w.spoke, resource, w.target, name, what, func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errors.New("there is none")
		}
		return check(obj)
	})
}

// has waits until an object of the test's namespace on the cluster has a value.
func (w *site) has(resource schema.GroupVersionResource, name string, want any, path ...any) *unstructured.Unstructured {
	w.Helper()
	return w.object(resource, name, text("has %v at %v", want, path), func(obj *unstructured.Unstructured) error {
		if got := field(obj.Object, path...); got != want {
			return fmt.Errorf("it has %v", got)
		}
		return nil
	})
}

// exists waits until there is an object in the test's namespace on the cluster.
func (w *site) exists(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.Helper()
	return w.object(resource, name, "exists", func(*unstructured.Unstructured) error { return nil })
}

// gone waits until an object does not exist.
func (w *site) gone(client dynamic.Interface, resource schema.GroupVersionResource, namespace, name string) {
	w.Helper()
	w.await(client, resource, namespace, name, "is gone", func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return nil
		}
		finalizers, conditions := obj.GetFinalizers(), field(obj.Object, "status", "conditions")
		return fmt.Errorf("it is there with finalizers %v and conditions %v", finalizers, conditions)
	})
}

// state returns what a work lacks to be in it, nil if it is.
type state func(*workv1.ManifestWork) error

// until waits until a work is in all states at once.
func (w *site) until(name, what string, states ...state) *workv1.ManifestWork {
	w.Helper()
	var work *workv1.ManifestWork
	w.await(w.hub, worksResource, w.cluster, name, what, func(obj *unstructured.Unstructured) error {
		if obj == nil {
			return errors.New("there is none")
		}
		work = &workv1.ManifestWork{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, work); err != nil {
			return err
		}
		for _, is := range states {
			if err := is(work); err != nil {
				status, _ := json.Marshal(work.Status)
				return fmt.Errorf("%w; at generation %d it has %s", err, work.Generation, status)
			}
		}
		return nil
	})
	return work
}

// States of works.
var (
	applied    = workIs(workv1.WorkApplied, "True", "AppliedManifestWorkComplete", "Apply manifest work complete")
	notApplied = workIs(workv1.WorkApplied, "False", "AppliedManifestWorkFailed", "Failed to apply manifest work")
	available  = workIs(workv1.WorkAvailable, "True", "ResourcesAvailable", "All resources are available")
)

// workIs returns the state of a work with a condition that observes its latest generation.
func workIs(kind, status, reason, message string) state {
	return func(work *workv1.ManifestWork) error {
		if err := observed(kind)(work); err != nil {
			return err
		}
		return conditionIs(work.Status.Conditions, kind, status, reason, message)
	}
}

// observed returns the state of a work with a condition of this type that observes its latest
// generation.
func observed(kind string) state {
	return func(work *workv1.ManifestWork) error {
		if c := meta.FindStatusCondition(work.Status.Conditions, kind); c == nil || c.ObservedGeneration != work.Generation {
			return fmt.Errorf("%s does not observe the latest generation", kind)
		}
		return nil
	}
}

// manifestIs returns the state of a work whose manifest has the condition.
func manifestIs(i int, kind, status, reason, message string) state {
	return func(work *workv1.ManifestWork) error {
		if len(work.Status.ResourceStatus.Manifests) <= i {
			return fmt.Errorf("no status of manifest %d", i)
		}
		return conditionIs(work.Status.ResourceStatus.Manifests[i].Conditions, kind, status, reason, message)
	}
}

// manifestApplied returns the state of a work whose manifest is applied.
func manifestApplied(i int) state {
	return manifestIs(i, workv1.ManifestApplied, "True", "AppliedManifestComplete", "Apply manifest complete")
}

// manifestFails returns the state of a work whose manifest is not applied. The message has the
// parts, in this order.
func manifestFails(i int, parts ...string) state {
	return func(work *workv1.ManifestWork) error {
		if err := notApplied(work); err != nil {
			return err
		}
		if len(work.Status.ResourceStatus.Manifests) <= i {
			return fmt.Errorf("no status of manifest %d", i)
		}
		c := meta.FindStatusCondition(work.Status.ResourceStatus.Manifests[i].Conditions, workv1.ManifestApplied)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "AppliedManifestFailed" {
			return fmt.Errorf("Applied of manifest %d is %+v", i, c)
		}
		rest, ok := strings.CutPrefix(c.Message, "Failed to apply manifest: ")
		for _, part := range parts {
			if ok {
				_, rest, ok = strings.Cut(rest, part)
			}
		}
		if !ok {
			return fmt.Errorf("manifest %d says %q, want %q", i, c.Message, parts)
		}
		return nil
	}
}

func conditionIs(conditions []metav1.Condition, kind, status, reason, message string) error {
	want := metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason, Message: message}
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return fmt.Errorf("no condition %s", kind)
	}
	if got := (metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}); got != want {
		return fmt.Errorf("condition %+v, want %+v", got, want)
	}
	return nil
}

// fedBack returns the state of a work whose manifest has exactly these feedback values, in this
// order, as name=value.
func fedBack(i int, want string) state {
	return func(work *workv1.ManifestWork) error {
		if len(work.Status.ResourceStatus.Manifests) <= i {
			return fmt.Errorf("no status of manifest %d", i)
		}
		var values []string
		for _, v := range work.Status.ResourceStatus.Manifests[i].StatusFeedbacks.Values {
			switch {
			case v.Value.Type == workv1.Integer && v.Value.Integer != nil:
				values = append(values, fmt.Sprintf("%s=%d", v.Name, *v.Value.Integer))
			case v.Value.Type == workv1.String && v.Value.String != nil:
				values = append(values, fmt.Sprintf("%s=%q", v.Name, *v.Value.String))
			case v.Value.Type == workv1.Boolean && v.Value.Boolean != nil:
				values = append(values, fmt.Sprintf("%s=%t", v.Name, *v.Value.Boolean))
			case v.Value.Type == workv1.JsonRaw && v.Value.JsonRaw != nil:
				values = append(values, v.Name+"="+*v.Value.JsonRaw)
			default:
				values = append(values, fmt.Sprintf("%s=%+v", v.Name, v.Value))
			}
		}
		if got := strings.Join(values, " "); got != want {
			return fmt.Errorf("fed back: %s, want %s", got, want)
		}
		return nil
	}
}

// watchField makes a work feed back the value at a path of an object as "seen": it shows which
// state of the object the agent has observed.
func (w *site) watchField(spec map[string]any, resource schema.GroupVersionResource, name, path string) {
	configs, _ := spec["manifestConfigs"].([]any)
	spec["manifestConfigs"] = append(configs, map[string]any{
		"resourceIdentifier": map[string]any{"group": resource.Group, "resource": resource.Resource, "namespace": w.target, "name": name},
		"feedbackRules": []any{map[string]any{
			"type": "JSONPaths", "jsonPaths": []any{map[string]any{"name": "seen", "path": path}},
		}},
	})
}

// managers returns the managers of an object's fields, as "manager operation", in the order of the
// API server.
func managers(obj *unstructured.Unstructured) []string {
	var found []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Subresource == "" {
			found = append(found, entry.Manager+" "+string(entry.Operation))
		}
	}
	return found
}

// owners returns the names of an object's owners.
func owners(obj *unstructured.Unstructured) []string {
	var names []string
	for _, owner := range obj.GetOwnerReferences() {
		names = append(names, owner.Name)
	}
	return names
}

func hash(host string) string {
	sum := sha256.Sum256([]byte(host))
	return hex.EncodeToString(sum[:])
}
