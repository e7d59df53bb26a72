// Package install writes CustomResourceDefinitions and admission policies to an API server.
//
//	err := install.CRDs(ctx, config, crds.Hub()...)
//	err = install.Policies(ctx, config, policies.Default()...)
//
// Installing again, or from several processes at once, is safe: an object that exists gets the
// wanted spec, and keeps the labels and annotations that others set on it. All functions return an
// error when a request is denied or fails, or when ctx ends; objects handled before stay as they
// are. The error names the object.
package install

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// retryInterval is the time between two attempts to write or read an object.
const retryInterval = 100 * time.Millisecond

// Policy is an admission policy with its binding, such as [policies.Policy] and
// [policies.Mutation].
type Policy interface {
	// Objects returns the policy and then the binding.
	Objects() []runtime.Object
}

// Policies creates or updates policies and their bindings. It does not wait until the API servers
// enforce them, which takes seconds. It needs the rights to get, create and update the resources of
// both kinds.
func Policies[P Policy](ctx context.Context, config *rest.Config, policies ...P) error {
	for _, policy := range policies {
		if err := put(ctx, config, policy.Objects()...); err != nil {
			return err
		}
	}
	return nil
}

// RemovePolicies deletes policies and their bindings by name. It skips those that do not exist. The
// API servers enforce them for seconds more. It needs the rights to delete the resources of both
// kinds.
func RemovePolicies[P Policy](ctx context.Context, config *rest.Config, policies ...P) error {
	for _, policy := range policies {
		objects := policy.Objects()
		for i := len(objects) - 1; i >= 0; i-- { // the binding first
			client, object, err := clientFor(config, objects[i])
			if err != nil {
				return err
			}
			err = client.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return nil
}

// kinds are the kinds of objects that this package installs.
var kinds = map[string]schema.GroupVersionResource{
	"CustomResourceDefinition":         apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"),
	"ValidatingAdmissionPolicy":        admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies"),
	"ValidatingAdmissionPolicyBinding": admissionv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings"),
	"MutatingAdmissionPolicy":          admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicies"),
	"MutatingAdmissionPolicyBinding":   admissionv1.SchemeGroupVersion.WithResource("mutatingadmissionpolicybindings"),
}

// clientFor returns a client for the resource of an object, and the object as it is sent.
func clientFor(config *rest.Config, object runtime.Object) (dynamic.ResourceInterface, *unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, nil, fmt.Errorf("install %T: %w", object, err)
	}
	delete(content, "status")
	sent := &unstructured.Unstructured{Object: content}
	kind := reflect.TypeOf(object).Elem().Name() // typed objects may lack their kind
	gvr, ok := kinds[kind]
	if !ok {
		return nil, nil, fmt.Errorf("install %T %s: this kind is not supported", object, sent.GetName())
	}
	sent.SetKind(kind)
	sent.SetAPIVersion(gvr.GroupVersion().String())
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("install %s %s: client configuration: %w", sent.GetKind(), sent.GetName(), err)
	}
	return client.Resource(gvr), sent, nil
}

// put creates the objects, or updates those of the same names.
func put(ctx context.Context, config *rest.Config, objects ...runtime.Object) error {
	for _, object := range objects {
		client, wanted, err := clientFor(config, object)
		if err != nil {
			return err
		}
		if err := putOne(ctx, client, wanted); err != nil {
			return fmt.Errorf("install %s %s: %w", wanted.GetKind(), wanted.GetName(), err)
		}
	}
	return nil
}

// putOne creates or updates an object. It waits while an object of its name is being deleted, and
// retries when another process wrote the object at the same time.
func putOne(ctx context.Context, client dynamic.ResourceInterface, wanted *unstructured.Unstructured) error {
	var waitingFor error
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		case err != nil:
		case current.GetDeletionTimestamp() != nil:
			waitingFor = errors.New("an older object of this name is still being deleted")
			return false, nil
		default:
			_, err = client.Update(ctx, updated(current, wanted), metav1.UpdateOptions{})
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			waitingFor = err
			return false, nil
		}
		return err == nil, err
	})
	if wait.Interrupted(err) && waitingFor != nil {
		return fmt.Errorf("%w: %w", err, waitingFor)
	}
	return err
}

// updated returns current with the spec, labels and annotations of wanted. It keeps other labels
// and annotations, and the conversion webhook of a definition if wanted has none.
func updated(current, wanted *unstructured.Unstructured) *unstructured.Unstructured {
	next := current.DeepCopy()
	spec := wanted.DeepCopy().Object["spec"].(map[string]any)
	if conversion, ok, _ := unstructured.NestedFieldCopy(current.Object, "spec", "conversion"); ok && spec["conversion"] == nil {
		spec["conversion"] = conversion
	}
	next.Object["spec"] = spec
	next.SetLabels(merged(current.GetLabels(), wanted.GetLabels()))
	next.SetAnnotations(merged(current.GetAnnotations(), wanted.GetAnnotations()))
	return next
}

func merged(current, wanted map[string]string) map[string]string {
	if len(wanted) == 0 {
		return current
	}
	out := maps.Clone(current)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, wanted)
	return out
}
