package policies

import (
	"bytes"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Mutation is a policy that changes what is created, together with the binding
// that puts it in force.
type Mutation struct {
	Policy  *admissionv1.MutatingAdmissionPolicy
	Binding *admissionv1.MutatingAdmissionPolicyBinding
}

// Finalizers gives a fresh copy of the policy that gives works the hub's finalizer
// when they are created: it saves the hub a request a work. Not for every hub, see
// docs/policies.md. It needs Kubernetes 1.36 or newer.
func Finalizers() Mutation {
	const name = "finalizers.yaml"
	m := Mutation{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
	text, err := files.ReadFile(name)
	policy, binding, _ := bytes.Cut(text, []byte("\n---\n"))
	if err == nil {
		err = yaml.UnmarshalStrict(policy, m.Policy)
	}
	if err == nil {
		err = yaml.UnmarshalStrict(binding, m.Binding)
	}
	if err != nil {
		panic(fmt.Sprintf("policies: embedded file %s: %v", name, err))
	}
	return m
}

// InstallMutation is [Install] for a Mutation. It needs the rights to get, create and
// update mutatingadmissionpolicies and mutatingadmissionpolicybindings.
func InstallMutation(ctx context.Context, config *rest.Config, m Mutation) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("install MutatingAdmissionPolicies: client configuration: %w", err)
	}
	registration := client.AdmissionregistrationV1()
	err = put(ctx, registration.MutatingAdmissionPolicies(), m.Policy,
		func(current *admissionv1.MutatingAdmissionPolicy) { current.Spec = m.Policy.Spec })
	if err != nil {
		return fmt.Errorf("install MutatingAdmissionPolicy %s: %w", m.Policy.Name, err)
	}
	err = put(ctx, registration.MutatingAdmissionPolicyBindings(), m.Binding,
		func(current *admissionv1.MutatingAdmissionPolicyBinding) { current.Spec = m.Binding.Spec })
	if err != nil {
		return fmt.Errorf("install MutatingAdmissionPolicyBinding %s: %w", m.Binding.Name, err)
	}
	return nil
}

// RemoveMutation is [Remove] for a Mutation. Works that have the finalizer keep it.
func RemoveMutation(ctx context.Context, config *rest.Config, m Mutation) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("remove MutatingAdmissionPolicies: client configuration: %w", err)
	}
	registration := client.AdmissionregistrationV1()
	err = registration.MutatingAdmissionPolicyBindings().Delete(ctx, m.Binding.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove MutatingAdmissionPolicyBinding %s: %w", m.Binding.Name, err)
	}
	err = registration.MutatingAdmissionPolicies().Delete(ctx, m.Policy.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove MutatingAdmissionPolicy %s: %w", m.Policy.Name, err)
	}
	return nil
}
