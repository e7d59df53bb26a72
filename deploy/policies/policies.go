// Package policies holds the admission policies of a hub.
//
// They deny a ManifestWork or ManifestWorkReplicaSet that every agent would reject, one with an
// executor that its author may not use, and a change of cluster sets that its author may not make,
// when it is written. The API server evaluates them itself:
// there is no webhook to run. The YAML files in this directory can be applied with kubectl as well;
// docs/policies.md describes them.
//
//	err := install.Policies(ctx, config, policies.Default()...)
//
// They need Kubernetes 1.33 or newer.
package policies

import (
	"bytes"
	"embed"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml finalizers/policy.yaml
var files embed.FS

// Policy is a policy with its binding.
type Policy struct {
	Policy  *admissionv1.ValidatingAdmissionPolicy
	Binding *admissionv1.ValidatingAdmissionPolicyBinding
}

// Objects returns the policy and the binding.
func (p Policy) Objects() []runtime.Object { return []runtime.Object{p.Policy, p.Binding} }

// Default returns new copies of the policies for every hub: what a work must contain, who may use
// which executor, who may bind a set of clusters to a namespace, and who may change the set of a
// cluster.
func Default() []Policy {
	return read("manifests.yaml", "executors.yaml", "cluster-set-bindings.yaml", "cluster-set-members.yaml")
}

// NilExecutor returns a new copy of the policy for hubs where works need an executor: who may omit
// it. It complements those of Default, and corresponds to OCM's feature gate NilExecutorValidating.
func NilExecutor() []Policy { return read("nil-executor.yaml") }

// read decodes embedded files. It panics on one that cannot be read, which is an error of the
// build.
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
