package policies

import (
	"context"
	"fmt"
	"maps"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// retryInterval is the time before a write is tried again that another process came before.
const retryInterval = 100 * time.Millisecond

// Install creates the policies and their bindings, or brings existing ones back to what they are here. The API servers
// follow within seconds; Install does not wait for them.
//
// Labels and annotations that others put on an existing object stay; what they changed in it does not. Calling Install
// again, or from several processes at once, is safe. It needs the rights to get, create and update
// validatingadmissionpolicies and validatingadmissionpolicybindings.
//
// It ends with an error when a request is refused or fails, or with ctx; objects handled so far stay. The error says
// which object.
func Install(ctx context.Context, config *rest.Config, policies ...Policy) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install ValidatingAdmissionPolicies: client configuration: %w", err)
	}
	registration := client.AdmissionregistrationV1()
	for _, p := range policies {
		err := put(ctx, "ValidatingAdmissionPolicy", registration.ValidatingAdmissionPolicies(), p.Policy,
			func(current *admissionv1.ValidatingAdmissionPolicy) { current.Spec = p.Policy.Spec })
		if err != nil {
			return err
		}
		err = put(ctx, "ValidatingAdmissionPolicyBinding", registration.ValidatingAdmissionPolicyBindings(), p.Binding,
			func(current *admissionv1.ValidatingAdmissionPolicyBinding) { current.Spec = p.Binding.Spec })
		if err != nil {
			return err
		}
	}
	return nil
}

// Remove deletes the policies and their bindings, by name; those that do not exist are removed already. The API servers
// follow within seconds. It needs the right to delete both kinds. Its errors are like those of Install.
func Remove(ctx context.Context, config *rest.Config, policies ...Policy) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("remove ValidatingAdmissionPolicies: client configuration: %w", err)
	}
	registration := client.AdmissionregistrationV1()
	for _, p := range policies {
		err := remove(ctx, "ValidatingAdmissionPolicyBinding", registration.ValidatingAdmissionPolicyBindings(), p.Binding)
		if err != nil {
			return err
		}
		if err := remove(ctx, "ValidatingAdmissionPolicy", registration.ValidatingAdmissionPolicies(), p.Policy); err != nil {
			return err
		}
	}
	return nil
}

// resource is the client of one kind.
type resource[T metav1.Object] interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, options metav1.CreateOptions) (T, error)
	Update(ctx context.Context, object T, options metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, options metav1.DeleteOptions) error
}

// remove deletes the object of that name, if there is one.
func remove[T metav1.Object](ctx context.Context, kind string, client resource[T], object T) error {
	if err := client.Delete(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove %s %s: %w", kind, object.GetName(), err)
	}
	return nil
}

// put creates the object, or updates the one of its name, to which setSpec gives the wanted spec.
func put[T metav1.Object](ctx context.Context, kind string, client resource[T], wanted T, setSpec func(current T)) error {
	var lost error
	err := wait.PollUntilContextCancel(ctx, retryInterval, true, func(ctx context.Context) (bool, error) {
		current, err := client.Get(ctx, wanted.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		case err == nil:
			setSpec(current)
			current.SetLabels(merged(current.GetLabels(), wanted.GetLabels()))
			current.SetAnnotations(merged(current.GetAnnotations(), wanted.GetAnnotations()))
			_, err = client.Update(ctx, current, metav1.UpdateOptions{})
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			lost = err
			return false, nil
		}
		return err == nil, err
	})
	if wait.Interrupted(err) && lost != nil {
		err = fmt.Errorf("%w: %w", err, lost)
	}
	if err != nil {
		return fmt.Errorf("install %s %s: %w", kind, wanted.GetName(), err)
	}
	return nil
}

// merged is current with the entries of wanted.
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
