package policies

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Mutation is a policy that changes objects at their creation, with its binding.
type Mutation struct {
	Policy  *admissionv1.MutatingAdmissionPolicy
	Binding *admissionv1.MutatingAdmissionPolicyBinding
}

// Objects returns the policy and the binding.
func (m Mutation) Objects() []runtime.Object { return []runtime.Object{m.Policy, m.Binding} }

// Finalizers returns a new copy of the policy that adds the hub's finalizer to works at their
// creation, which saves the hub one request for each work. docs/policies.md says which hubs it
// suits. It needs Kubernetes 1.36 or newer. Works keep the finalizer when the policy is removed.
func Finalizers() Mutation {
	m := Mutation{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}}
	decode("finalizers/policy.yaml", m.Policy, m.Binding)
	return m
}
