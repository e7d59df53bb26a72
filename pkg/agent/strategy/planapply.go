package strategy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// planApply is for server-side apply, which leaves merging to the API server. The
// hash has an annotation of its own for each field manager, so that two of them
// can share an object.
func planApply(m *Manifest, s Situation) Step {
	if s.Live.State != object.Present && m.Desired.GetResourceVersion() != "" {
		// An apply would create the object without a word; a POST is refused.
		return planCreate(m, s)
	}
	if m.ignore != nil {
		return planIgnoring(m, s)
	}
	annotation := applyAnnotation(s.manager(m))
	var wrong []string
	if s.Live.State == object.Present {
		live := s.Live.Object
		_, wrong = metadataDifferences(m, s)
		wrong = append(wrong, differences(m, live, s.Settled)...)
		if len(wrong) == 0 && live.GetAnnotations()[annotation] == m.Hash && !reapplies(m, s.Previous) {
			return Step{}
		}
		if step, needed := claim(m, s); needed {
			return step
		}
	}
	slices.Sort(wrong)
	return Step{Verb: Apply, Object: applyBody(m, m.Desired, s, annotation, m.Hash), Differences: wrong}
}

// planIgnoring is for server-side apply with ignoreFields: the object is written
// when it is missing, and when the manifest less the fields of OnSpokePresent is
// another than the one that the object's annotation tells of. Drift stays.
func planIgnoring(m *Manifest, s Situation) Step {
	const annotation = workv1.ManifestConfigSpecHashAnnotationKey
	if s.Live.State != object.Present {
		if !s.Complete {
			return Step{Verb: Read} // what is sent depends on whether there is an object
		}
		return Step{Verb: Apply, Object: applyBody(m, m.Desired, s, annotation, m.ignore.hash)}
	}
	live := s.Live.Object
	if live.GetAnnotations()[annotation] == m.ignore.hash && !reapplies(m, s.Previous) {
		return planMark(m, s)
	}
	if step, needed := claim(m, s); needed {
		return step
	}
	if m.ignore.present == nil {
		return Step{Verb: Apply, Object: applyBody(m, m.Desired, s, annotation, m.ignore.hash)}
	}
	if !s.Complete {
		return Step{Verb: Read}
	}
	body := m.ignore.rest.DeepCopy()
	if err := keepIgnored(body, live, m.ignore.present, s.manager(m)); err != nil {
		return Step{Err: err}
	}
	body = applyBody(m, body, s, annotation, m.ignore.hash)
	// It is made for this object as it is now, and would make an incomplete new one.
	body.SetUID(live.GetUID())
	if body.GetResourceVersion() == "" {
		body.SetResourceVersion(live.GetResourceVersion())
	}
	return Step{Verb: Apply, Object: body}
}

// planMark sees to nothing but the owner reference and the agent's label.
func planMark(m *Manifest, s Situation) Step {
	refs, wrong := metadataDifferences(m, s)
	if len(wrong) == 0 {
		return Step{}
	}
	return Step{Verb: Mark, Object: markBody(s.Live.Object, refs, s.AgentHash), Differences: wrong}
}

// markBody is a merge patch for an object as it is now. No label removes it.
func markBody(live *unstructured.Unstructured, refs []metav1.OwnerReference, label any) *unstructured.Unstructured {
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

// applyBody is what an apply sends.
func applyBody(m *Manifest, manifest *unstructured.Unstructured, s Situation, annotation, hash string) *unstructured.Unstructured {
	body := manifest.DeepCopy()
	refs, _ := withOwner(body.GetOwnerReferences(), s.Owner, m.Owned)
	setOwners(body, refs)
	mark(body, s.AgentHash, annotation, hash)
	return body
}

// claim gives the step by which the fields that Update or CreateOnly wrote become
// fields of our applies: otherwise they would conflict with them, and would stay
// when the manifest drops them. Those of an object that another work shares may be
// that work's. Whether there are any is looked up where the object carries the
// hash of an Update.
func claim(m *Manifest, s Situation) (step Step, needed bool) {
	live := s.Live.Object
	if shared(live, s.Owner) {
		return Step{}, false
	}
	if !s.Complete {
		_, updated := live.GetAnnotations()[object.HashAnnotation]
		_, declared := m.Desired.GetAnnotations()[object.HashAnnotation]
		return Step{Verb: Read}, updated && !declared
	}
	if len(claimable(m, s)) == 0 {
		return Step{}, false
	}
	return Step{Verb: Claim}, true
}

// claimable gives our own field managers that have written the object otherwise
// than by apply.
func claimable(m *Manifest, s Situation) []string {
	ours := s.managers(m)
	var found []string
	for _, entry := range s.Live.Object.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" &&
			slices.Contains(ours, entry.Manager) && !slices.Contains(found, entry.Manager) {
			found = append(found, entry.Manager)
		}
	}
	return found
}

func applyAnnotation(fieldManager string) string {
	sum := sha256.Sum256([]byte(fieldManager))
	return object.HashAnnotation + "." + hex.EncodeToString(sum[:])[:8]
}

// reapplies says whether what was applied before calls for another apply, whatever
// the object's annotation says. What another field manager applied does not: the
// work may have a manifest for each.
func reapplies(m, previous *Manifest) bool {
	switch {
	case previous == nil:
		return false
	case previous.Strategy != m.Strategy:
		return true
	case previous.FieldManager != m.FieldManager:
		return false
	case m.ignore == nil || previous.ignore == nil:
		return m.ignore != previous.ignore || previous.Hash != m.Hash
	default:
		return previous.ignore.hash != m.ignore.hash
	}
}
