package policies

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
	m := Mutation{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
	decode("finalizers.yaml", m.Policy, m.Binding)
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
	err = put(ctx, "MutatingAdmissionPolicy", registration.MutatingAdmissionPolicies(), m.Policy,
		func(current *admissionv1.MutatingAdmissionPolicy) { current.Spec = m.Policy.Spec })
	if err != nil {
		return err
	}
	return put(ctx, "MutatingAdmissionPolicyBinding", registration.MutatingAdmissionPolicyBindings(), m.Binding,
		func(current *admissionv1.MutatingAdmissionPolicyBinding) { current.Spec = m.Binding.Spec })
}

// RemoveMutation is [Remove] for a Mutation. Works that have the finalizer keep it.
func RemoveMutation(ctx context.Context, config *rest.Config, m Mutation) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("remove MutatingAdmissionPolicies: client configuration: %w", err)
	}
	registration := client.AdmissionregistrationV1()
	err = remove(ctx, "MutatingAdmissionPolicyBinding", registration.MutatingAdmissionPolicyBindings(), m.Binding)
	if err != nil {
		return err
	}
	return remove(ctx, "MutatingAdmissionPolicy", registration.MutatingAdmissionPolicies(), m.Policy)
}
