package plan

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// planApply is for server-side apply, in which the API server merges.
func planApply(m *strategy.Manifest, s *State) Step {
	if s.Live.State != object.Present && m.Desired.GetResourceVersion() != "" {
		return planCreate(m, s) // an apply would ignore the resourceVersion, a POST fails
	}
	if m.Ignored != nil {
		return planIgnoring(m, s)
	}
	var wrong []string
	if s.Live.State == object.Present {
		_, wrong = metadataDifferences(m, s)
		wrong = append(wrong, differences(m, s)...)
		if len(wrong) == 0 && s.wasApplied(m) && !s.reapplies(m) {
			return Step{}
		}
		if step, needed := migrateManagedFields(m, s); needed {
			return step
		}
	}
	slices.Sort(wrong)
	return Step{Verb: Apply, Object: applyBody(m, m.Desired, s), Differences: wrong}
}

// planIgnoring is for server-side apply with ignoreFields. The object is written if it does not
// exist, and if the manifest without ignored fields is not the one that the object's annotation
// names. Drift is not repaired.
func planIgnoring(m *strategy.Manifest, s *State) Step {
	if s.Live.State != object.Present {
		if !s.Complete {
			return Step{Verb: Read} // the body depends on whether the object exists
		}
		return Step{Verb: Apply, Object: applyBody(m, m.Desired, s)}
	}
	live := s.Live.Object
	if live.GetAnnotations()[workv1.ManifestConfigSpecHashAnnotationKey] == m.Ignored.Hash && !s.reapplies(m) {
		refs, wrong := metadataDifferences(m, s)
		if len(wrong) == 0 {
			return Step{}
		}
		return Step{Verb: PatchMetadata, Object: metadataPatch(live, refs, s.AgentHash), Differences: wrong}
	}
	if step, needed := migrateManagedFields(m, s); needed {
		return step
	}
	if m.Ignored.Fields == nil {
		return Step{Verb: Apply, Object: applyBody(m, m.Desired, s)}
	}
	if !s.Complete {
		return Step{Verb: Read}
	}
	body := m.Ignored.Rest.DeepCopy()
	if err := m.Ignored.Fields.Keep(body, live, m.Manager()); err != nil {
		return Step{Err: err}
	}
	body = applyBody(m, body, s)
	// The body is for this version of this object. A new object would be incomplete.
	body.SetUID(live.GetUID())
	if body.GetResourceVersion() == "" {
		body.SetResourceVersion(live.GetResourceVersion())
	}
	return Step{Verb: Apply, Object: body}
}

// applyBody returns the body of an apply.
func applyBody(m *strategy.Manifest, manifest *unstructured.Unstructured, s *State) *unstructured.Unstructured {
	body := manifest.DeepCopy()
	refs, _ := ownership.SetReference(body.GetOwnerReferences(), s.Owner, m.Owned)
	setOwners(body, refs)
	set(body, "labels", object.AgentLabel, s.AgentHash)
	if m.Ignored != nil {
		set(body, "annotations", workv1.ManifestConfigSpecHashAnnotationKey, m.Ignored.Hash)
	}
	return body
}

// migrateManagedFields returns the step by which fields that Update or CreateOnly wrote become
// fields of the agent's applies, if one is needed. Otherwise they would conflict with the applies
// and stay when the manifest drops them. The fields of a shared object may be another work's. An
// object is read for it if it may have been updated before.
func migrateManagedFields(m *strategy.Manifest, s *State) (step Step, needed bool) {
	if s.shared() {
		return Step{}, false
	}
	if !s.Complete {
		return Step{Verb: Read}, s.wasUpdated()
	}
	if len(ManagersToMigrate(m, *s)) == 0 {
		return Step{}, false
	}
	return Step{Verb: MigrateManagedFields}, true
}

// ManagersToMigrate returns the agent's own field managers that have written the object other than
// by server-side apply.
func ManagersToMigrate(m *strategy.Manifest, s State) []string {
	own := s.managers(m)
	var found []string
	for _, entry := range s.Live.Object.GetManagedFields() {
		if entry.Operation == metav1.ManagedFieldsOperationUpdate && entry.Subresource == "" &&
			slices.Contains(own, entry.Manager) && !slices.Contains(found, entry.Manager) {
			found = append(found, entry.Manager)
		}
	}
	return found
}

// reapplies reports whether the previous manifest requires another apply, whatever the object's
// annotation says. A manifest of another field manager does not: a work may have one for each.
func (s *State) reapplies(m *strategy.Manifest) bool {
	previous := s.Previous
	switch {
	case previous == nil: // former agents recorded no more than that they applied it
		return m.Ignored != nil && s.FieldsDigest != "" && s.recordedDigest(m) == "" &&
			!slices.Contains(strings.Split(s.FieldsDigest, ","), applied)
	case previous.Strategy != m.Strategy:
		return true
	case previous.FieldManager != m.FieldManager:
		return false
	case m.Ignored == nil || previous.Ignored == nil:
		return m.Ignored != previous.Ignored || previous.Hash != m.Hash
	default:
		return previous.Ignored.Digest != m.Ignored.Digest
	}
}
