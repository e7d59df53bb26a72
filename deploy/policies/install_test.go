package policies_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	"github.com/workwire/workwire/test/kit"
)

// harmless gives a policy under a name of its own, which matches no object of other tests.
func harmless(t *testing.T) policies.Policy {
	t.Helper()
	p := policies.NilExecutor()[0]
	p.Policy.Name = strings.ToLower(t.Name())
	p.Binding.Name, p.Binding.Spec.PolicyName = p.Policy.Name, p.Policy.Name
	p.Policy.Spec.MatchConstraints.ResourceRules = p.Policy.Spec.MatchConstraints.ResourceRules[:1]
	p.Policy.Spec.MatchConstraints.ResourceRules[0].APIGroups = []string{"example.com"}
	return p
}

func TestInstall(t *testing.T) {
	ctx := t.Context()
	registration := kubernetes.NewForConfigOrDie(plane.REST()).AdmissionregistrationV1()
	p := harmless(t)
	var installs sync.WaitGroup
	for range 3 { // several processes start at once
		installs.Go(func() {
			if err := install.Policies(ctx, plane.REST(), p); err != nil {
				t.Error(err)
			}
		})
	}
	installs.Wait()

	// A stranger's label, and what an older version had.
	patch := []byte(`{"metadata":{"labels":{"team":"shop"}},"spec":{"failurePolicy":"Ignore",
		"variables":[{"name":"old","expression":"1"}]}}`)
	_, err := registration.ValidatingAdmissionPolicies().Patch(ctx, p.Policy.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	kit.NoError(t, err)
	patch = []byte(`{"spec":{"validationActions":["Warn"]}}`)
	_, err = registration.ValidatingAdmissionPolicyBindings().Patch(ctx, p.Binding.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	kit.NoError(t, err)
	kit.NoError(t, install.Policies(ctx, plane.REST(), p))
	policy, err := registration.ValidatingAdmissionPolicies().Get(ctx, p.Policy.Name, metav1.GetOptions{})
	kit.NoError(t, err)
	binding, err := registration.ValidatingAdmissionPolicyBindings().Get(ctx, p.Binding.Name, metav1.GetOptions{})
	kit.NoError(t, err)
	if policy.Labels["team"] != "shop" {
		t.Error("Install removed a label that it did not set")
	}
	if *policy.Spec.FailurePolicy != "Fail" || len(policy.Spec.Variables) != 0 || binding.Spec.ValidationActions[0] != "Deny" {
		t.Errorf("Install left %+v and %+v", policy.Spec, binding.Spec)
	}

	kit.NoError(t, install.Policies(ctx, plane.REST(), p))
	again, err := registration.ValidatingAdmissionPolicyBindings().Get(ctx, p.Binding.Name, metav1.GetOptions{})
	kit.NoError(t, err)
	if again.ResourceVersion != binding.ResourceVersion {
		t.Error("Install wrote a binding that was up to date")
	}

	kit.NoError(t, install.RemovePolicies(ctx, plane.REST(), p))
	_, errPolicy := registration.ValidatingAdmissionPolicies().Get(ctx, p.Policy.Name, metav1.GetOptions{})
	_, errBinding := registration.ValidatingAdmissionPolicyBindings().Get(ctx, p.Binding.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(errPolicy) || !apierrors.IsNotFound(errBinding) {
		t.Errorf("Remove left something: %v, %v", errPolicy, errBinding)
	}
	kit.NoError(t, install.RemovePolicies(ctx, plane.REST(), p)) // nothing is left to do
}

func TestInstallFails(t *testing.T) {
	p := harmless(t)
	nobody := as(plane.REST(), "nobody")
	for what, err := range map[string]error{
		"Install": install.Policies(t.Context(), nobody, p), "Remove": install.RemovePolicies(t.Context(), nobody, p),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), p.Policy.Name) {
			t.Errorf("%s without rights: %v", what, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{
		"Install": install.Policies(ended, plane.REST(), p), "Remove": install.RemovePolicies(ended, plane.REST(), p),
	} {
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), p.Policy.Name) {
			t.Errorf("%s with a context that has ended: %v", what, err)
		}
	}
	p.Policy.Spec.Validations[0].Expression = "no such thing"
	if err := install.Policies(t.Context(), plane.REST(), p); !apierrors.IsInvalid(err) {
		t.Errorf("Install of what is no expression: %v", err)
	}
}
