package plan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
)

var labelPointer = (*fields.Pointer)(nil).Key("metadata").Key("labels").Key(object.AgentLabel).String()

// metadataDifferences returns the owner references to set, and the JSON pointers of the agent's own
// metadata that is not as it should be.
func metadataDifferences(m *strategy.Manifest, s *State) ([]metav1.OwnerReference, []string) {
	var wrong []string
	refs, changed := ownership.SetReference(s.Live.Object.GetOwnerReferences(), s.Owner, m.Owned)
	if changed {
		wrong = append(wrong, "/metadata/ownerReferences")
	}
	if s.Live.Object.GetLabels()[object.AgentLabel] != s.AgentHash {
		wrong = append(wrong, labelPointer)
	}
	return refs, wrong
}

// metadataPatch returns a merge patch of owner references and label for an object as it is now. A
// nil label removes it.
func metadataPatch(live *unstructured.Unstructured, refs []metav1.OwnerReference, label any) *unstructured.Unstructured {
	body := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"labels":          map[string]any{object.AgentLabel: label},
		"ownerReferences": nil, // removes them
	}}}
	if len(refs) > 0 {
		body.SetOwnerReferences(refs)
	}
	body.SetUID(live.GetUID())
	body.SetResourceVersion(live.GetResourceVersion())
	return body
}

// AfterApply returns the step that follows the successful server-side apply of a manifest: an apply
// does not remove an owner reference that was set under another strategy.
func AfterApply(m *strategy.Manifest, s State, answer *unstructured.Unstructured) Step {
	if refs, changed := ownership.SetReference(answer.GetOwnerReferences(), s.Owner, false); !m.Owned && changed {
		return Step{Verb: PatchMetadata, Object: metadataPatch(answer, refs, s.AgentHash)}
	}
	return Step{}
}

// ReleasePatch returns the merge patch that removes the reference to owner from an object, and the
// agent's label unless another work owns the object. It returns nil if there is nothing to remove.
func ReleasePatch(live *unstructured.Unstructured, owner types.UID, agentHash string) *unstructured.Unstructured {
	var kept []metav1.OwnerReference
	shared := false
	for _, ref := range live.GetOwnerReferences() {
		if ref.UID != owner {
			kept = append(kept, ref)
			shared = shared || ownership.IsWork(ref)
		}
	}
	body := metadataPatch(live, kept, nil)
	if shared || live.GetLabels()[object.AgentLabel] != agentHash {
		if len(kept) == len(live.GetOwnerReferences()) {
			return nil // labelled by another agent
		}
		unstructured.RemoveNestedField(body.Object, "metadata", "labels")
	}
	return body
}

func setOwners(obj *unstructured.Unstructured, refs []metav1.OwnerReference) {
	if len(refs) == 0 {
		unstructured.RemoveNestedField(obj.Object, "metadata", "ownerReferences")
		return
	}
	obj.SetOwnerReferences(refs)
}

// set sets a label or annotation. Labels or annotations that are not objects are left for the API
// server to refuse.
func set(obj *unstructured.Unstructured, field, key, value string) {
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok {
		return
	}
	if metadata[field] == nil {
		metadata[field] = map[string]any{}
	}
	if keys, ok := metadata[field].(map[string]any); ok {
		keys[key] = value
	}
}
