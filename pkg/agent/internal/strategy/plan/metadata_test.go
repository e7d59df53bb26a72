package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
)

// TestReleasePatch: an object loses the reference and the label, each only if it is ours.
func TestReleasePatch(t *testing.T) {
	second := ownership.Reference("hub-other", "other-uid")
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}
	refs := func(refs ...metav1.OwnerReference) []metav1.OwnerReference { return refs }
	for name, test := range map[string]struct {
		refs     []metav1.OwnerReference
		label    string
		want     []metav1.OwnerReference
		unlabels bool
		none     bool
	}{
		"ours":                       {refs: refs(owner), label: agentHash, unlabels: true},
		"with a reference of others": {refs: refs(pod, owner), label: agentHash, want: refs(pod), unlabels: true},
		"shared":                     {refs: refs(owner, second, pod), label: agentHash, want: refs(second, pod)},
		"labelled by another agent":  {refs: refs(owner), label: "other"},
		"an orphan with our label":   {refs: refs(pod), label: agentHash, want: refs(pod), unlabels: true},
		"another agent's":            {refs: refs(pod), label: "other", none: true},
		"of another work":            {refs: refs(second), label: agentHash, none: true},
	} {
		t.Run(name, func(t *testing.T) {
			live := strategytest.Decode(t, strategytest.ConfigMap("c", ""))
			live.SetUID("uid")
			live.SetResourceVersion("7")
			live.SetOwnerReferences(test.refs)
			live.SetLabels(map[string]string{object.AgentLabel: test.label})
			patch := plan.ReleasePatch(live, owner.UID, agentHash)
			if (patch == nil) != test.none {
				t.Fatalf("got %v", patch)
			}
			if test.none {
				return
			}
			checkPatch(t, patch, test.want)
			label, labels, _ := unstructured.NestedFieldNoCopy(patch.Object, "metadata", "labels", object.AgentLabel)
			if labels != test.unlabels || label != nil {
				t.Errorf("label: %t, %v", labels, label)
			}
		})
	}
}

// checkPatch checks that a patch is for the object that was read, and sets references.
func checkPatch(t *testing.T, patch *unstructured.Unstructured, want []metav1.OwnerReference) {
	t.Helper()
	if patch.GetUID() != "uid" || patch.GetResourceVersion() != "7" {
		t.Errorf("the patch is not guarded: %v", patch.Object)
	}
	if diff := cmp.Diff(want, patch.GetOwnerReferences()); diff != "" {
		t.Error(diff)
	}
	if _, set, _ := unstructured.NestedFieldNoCopy(patch.Object, "metadata", "ownerReferences"); !set {
		t.Error("references would stay")
	}
}

func TestAfterApply(t *testing.T) {
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p"}
	m := strategytest.Manifest(t, strategytest.ConfigMap("c", ""), strategytest.Configured(strategytest.ServerSide(nil)))
	orphan := *m
	orphan.Owned = false
	answer := applied(t, m, "")
	answer.SetOwnerReferences([]metav1.OwnerReference{pod, owner})
	s := situation(answer, nil)
	wantVerb(t, plan.AfterApply(m, s, answer), plan.Keep)
	step := plan.AfterApply(&orphan, s, answer)
	wantVerb(t, step, plan.PatchMetadata)
	checkPatch(t, step.Object, []metav1.OwnerReference{pod})
	if step.Object.GetLabels()[object.AgentLabel] != agentHash {
		t.Errorf("labels %v", step.Object.GetLabels())
	}
	wantVerb(t, plan.AfterApply(&orphan, s, applied(t, &orphan, "")), plan.Keep)
}
