package policies_test

import (
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/policies"
	"github.com/workwire/workwire/test/kit"
)

func all() []policies.Policy { return append(policies.Default(), policies.NilExecutor()...) }

func TestPolicies(t *testing.T) {
	files, err := filepath.Glob("*.yaml")
	kit.NoError(t, err)
	if len(files) != len(all()) {
		t.Errorf("%d files, %d policies", len(files), len(all()))
	}
	for _, p := range all() {
		if p.Policy.Kind != "ValidatingAdmissionPolicy" || p.Binding.Kind != "ValidatingAdmissionPolicyBinding" {
			t.Errorf("%s: kinds %s and %s", p.Policy.Name, p.Policy.Kind, p.Binding.Kind)
		}
		if p.Binding.Name != p.Policy.Name || p.Binding.Spec.PolicyName != p.Policy.Name {
			t.Errorf("%s is bound by %s to %s", p.Policy.Name, p.Binding.Name, p.Binding.Spec.PolicyName)
		}
		if actions := p.Binding.Spec.ValidationActions; len(actions) != 1 || actions[0] != admissionv1.Deny {
			t.Errorf("%s does %v", p.Binding.Name, actions)
		}
		if policy := p.Policy.Spec.FailurePolicy; policy == nil || *policy != admissionv1.Fail {
			t.Errorf("%s has no failurePolicy Fail", p.Policy.Name)
		}
		for _, rule := range p.Policy.Spec.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				if strings.Contains(resource, "/") {
					t.Errorf("%s matches %s: status is the agent's and the hub's to write", p.Policy.Name, resource)
				}
			}
		}
	}
	first := policies.Default()
	first[0].Policy.Name, first[0].Binding.Name = "changed", "changed"
	if again := policies.Default()[0]; again.Policy.Name == "changed" || again.Binding.Name == "changed" {
		t.Error("Default gives the same objects twice")
	}
}

// TestTypes asks the API server whether the expressions fit the schemas of our definitions.
func TestTypes(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(plane.REST()).AdmissionregistrationV1().ValidatingAdmissionPolicies()
	for _, p := range policies.Default() {
		var current *admissionv1.ValidatingAdmissionPolicy
		kit.True(t, "the types are checked", func() bool {
			var err error
			current, err = client.Get(t.Context(), p.Policy.Name, metav1.GetOptions{})
			kit.NoError(t, err)
			return current.Status.ObservedGeneration == current.Generation && current.Status.TypeChecking != nil
		})
		for _, warning := range current.Status.TypeChecking.ExpressionWarnings {
			t.Errorf("%s: %s: %s", p.Policy.Name, warning.FieldRef, warning.Warning)
		}
	}
}
