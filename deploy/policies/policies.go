// Package policies holds the ValidatingAdmissionPolicies of a hub and installs them.
//
// They refuse, while its author looks on, a ManifestWork or ManifestWorkReplicaSet that no agent would take, and one
// with an executor that its author may not use. The API server evaluates them itself: there is no webhook to run. The
// YAML files beside this one can be applied with kubectl as well; docs/policies.md says what they refuse.
//
//	err := policies.Install(ctx, config, policies.Default()...)
//
// They need Kubernetes 1.33 or newer.
package policies

import (
	"bytes"
	"embed"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Policy is a policy together with the binding that puts it in force.
type Policy struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Default gives fresh copies of the policies that every hub can have: what a work must be, and who may name which
// executor.
func Default() []Policy { return read("manifests.yaml", "executors.yaml") }

// NilExecutor gives a fresh copy of the policy for hubs where works need an executor: who may do without. It goes with
// those of Default, and is what the feature gate NilExecutorValidating is elsewhere.
func NilExecutor() []Policy { return read("nil-executor.yaml") }

// read decodes embedded files. They are part of the program: one that cannot be read is a fault of the build.
func read(names ...string) []Policy {
	var policies []Policy
	for _, name := range names {
		p := Policy{&admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}}
		decode(name, p.Policy, p.Binding)
		policies = append(policies, p)
	}
	return policies
}

// decode reads the two documents of an embedded file.
func decode(name string, policy, binding any) {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(fmt.Sprintf("policies: embedded file: %v", err))
	}
	first, second, found := bytes.Cut(text, []byte("\n---\n"))
	if !found {
		panic(fmt.Sprintf("policies: embedded file %s: no binding", name))
	}
	if err := yaml.UnmarshalStrict(first, policy); err != nil {
		panic(fmt.Sprintf("policies: embedded file %s: policy: %v", name, err))
	}
	if err := yaml.UnmarshalStrict(second, binding); err != nil {
		panic(fmt.Sprintf("policies: embedded file %s: binding: %v", name, err))
	}
}
