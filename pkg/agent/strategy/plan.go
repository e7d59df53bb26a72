package strategy

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/object"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Verb is what a [Step] does.
type Verb int

const (
	// Keep it: nothing is to be done.
	Keep Verb = iota
	// Read the object, whole, and plan again.
	Read
	// Create the object: POST.
	Create
	// Update the object: PUT, guarded by its uid and resourceVersion.
	Update
	// Apply the manifest: a server-side apply PATCH.
	Apply
	// Mark the object with owner references and the agent's label, and change nothing
	// else: a merge PATCH, guarded as Update is.
	Mark
	// Claim for server-side apply what we wrote otherwise before: a JSON PATCH of
	// managedFields, guarded by resourceVersion.
	Claim
)

var verbNames = [...]string{"Keep", "Read", "Create", "Update", "Apply", "Mark", "Claim"}

// String gives the verb's name.
func (v Verb) String() string {
	if v < 0 || int(v) >= len(verbNames) {
		return "?"
	}
	return verbNames[v]
}

// Step is the one thing to do next for a manifest.
type Step struct {
	Verb Verb
	// Object is the body of Create, Update, Apply and Mark; else nil.
	Object *unstructured.Unstructured
	// Differences are JSON pointers of what is wrong with the live object, sorted.
	// Empty where it does not exist, and where only the manifest has changed.
	Differences []string
	// Err says why there is no step that helps; the others are zero then.
	Err error
}

// Situation is what is known when a step is planned.
type Situation struct {
	// Live is the object.
	Live object.Live
	// Complete says that Live comes from a read of the whole object: if it is
	// Present its managedFields are there, if it is Absent there is none.
	Complete bool
	// Previous is the manifest last applied to the object for the work; nil if that
	// is not known.
	Previous *Manifest
	// Owner is the owner reference that owned objects carry.
	Owner metav1.OwnerReference
	// AgentHash is the value of the label that applied objects carry.
	AgentHash string
	// FieldManager of manifests that name none.
	FieldManager string
	// Settled is what the API server made of this manifest when it was written; nil
	// if it took it over as it is, or if that is not known.
	Settled *Settled
	// Refused says that the update planned before was refused as invalid, so that
	// fields left from a former manifest, or defaults that go with it, may be in the
	// way of this one.
	Refused bool
}

// manager is the field manager of writes for a manifest.
func (s *Situation) manager(m *Manifest) string {
	if m.FieldManager != "" {
		return m.FieldManager
	}
	return s.FieldManager
}

// managers are the field managers under which the work has written the object, as
// far as can be known: the one of now, the one of the manifest before, and the
// default on an object that is the work's alone.
func (s *Situation) managers(m *Manifest) []string {
	managers := []string{s.manager(m)}
	if s.Previous != nil {
		managers = append(managers, s.manager(s.Previous))
	}
	if s.Live.State == object.Present && !shared(s.Live.Object, s.Owner) {
		for _, ref := range s.Live.Object.GetOwnerReferences() {
			if ref.UID == s.Owner.UID {
				managers = append(managers, s.FieldManager)
			}
		}
	}
	return managers
}

// Plan gives the next step towards what a manifest declares. It does not change
// its arguments, and gives bodies that share nothing with them. The manifest must
// have no Err.
func Plan(m *Manifest, s Situation) Step {
	switch {
	case m.Strategy == workv1.UpdateStrategyTypeReadOnly:
		return Step{}
	case m.Strategy == workv1.UpdateStrategyTypeServerSideApply:
		return planApply(m, s)
	case s.Live.State != object.Present:
		return planCreate(m, s)
	case m.Strategy == workv1.UpdateStrategyTypeCreateOnly:
		return planAdopt(m, s)
	default:
		return planUpdate(m, s)
	}
}

// planCreate is for an object that is not known to exist. The POST comes first: it
// is right in nearly all cases, and says so if it is not. An object applied
// before, about which nothing is known now, is more likely to be there; and a POST
// with a resourceVersion is refused whether or not it is.
func planCreate(m *Manifest, s Situation) Step {
	likely := s.Live.State == object.Unknown && s.Previous != nil
	if !s.Complete && (likely || m.Desired.GetResourceVersion() != "") {
		return Step{Verb: Read}
	}
	body := m.Desired.DeepCopy()
	for _, field := range []string{"labels", "annotations"} {
		keys, _, _ := unstructured.NestedFieldNoCopy(body.Object, "metadata", field)
		if keys, ok := keys.(map[string]any); ok {
			for key := range keys {
				if strings.HasSuffix(key, "-") {
					delete(keys, key)
				}
			}
		}
	}
	body.SetOwnerReferences(nil)
	if m.Owned {
		body.SetOwnerReferences([]metav1.OwnerReference{s.Owner})
	}
	mark(body, s.AgentHash, object.HashAnnotation, m.Hash)
	return Step{Verb: Create, Object: body}
}

// planAdopt is for an object whose content is left alone.
func planAdopt(m *Manifest, s Situation) Step {
	refs, differences := metadataDifferences(m, s)
	if len(differences) == 0 {
		return Step{}
	}
	next := s.Live.Object.DeepCopy()
	next.SetManagedFields(nil)
	setOwners(next, refs)
	mark(next, s.AgentHash, "", "")
	return Step{Verb: Update, Object: next, Differences: differences}
}

// planUpdate is for an object that is to hold what the manifest declares.
func planUpdate(m *Manifest, s Situation) Step {
	live := s.Live.Object
	// A hash that another work left on an object that is shared says nothing.
	changed := live.GetAnnotations()[object.HashAnnotation] != m.Hash && !shared(live, s.Owner)
	prune := s.Refused || changed
	var previous *unstructured.Unstructured
	if s.Previous != nil {
		previous = s.Previous.Desired
		changed = !sameWrite(m, s.Previous)
		prune = s.Refused || changed && !shared(live, s.Owner) && dropsField(previous, m.Desired)
	}
	if prune && !s.Complete {
		return Step{Verb: Read}
	}
	refs, wrong := metadataDifferences(m, s)
	wrong = append(wrong, differences(m, live, s.Settled)...)
	if len(wrong) == 0 && !changed && !prune {
		return Step{}
	}
	quirks := m.quirks(live)
	next := live.DeepCopy()
	next.SetManagedFields(nil)
	var dropped []string
	if prune {
		dropped = dropUndeclared(next, m.Desired, updatersOf(live, s.managers(m)), quirks)
	}
	if len(wrong)+len(dropped) == 0 && !changed {
		return Step{}
	}
	if m.recreate && live.GetDeletionTimestamp() != nil {
		return Step{Err: awaiting(m, live)}
	}
	merger{quirks: quirks, changed: changed}.object(next, m.Desired, previous)
	if quirks.bundles {
		keepBundles(next.Object, live.Object)
	}
	if !shared(live, s.Owner) {
		forgetApplies(next, s.manager(m))
	}
	mergeKeys(next, m.Desired, "labels")
	mergeKeys(next, m.Desired, "annotations")
	setOwners(next, refs)
	mark(next, s.AgentHash, object.HashAnnotation, m.Hash)
	wrong = append(wrong, dropped...)
	slices.Sort(wrong)
	return Step{Verb: Update, Object: next, Differences: slices.Compact(wrong)}
}

// forgetApplies removes what says that a manifest was applied by server-side apply:
// it will not be so any more.
func forgetApplies(next *unstructured.Unstructured, manager string) {
	annotations, _, _ := unstructured.NestedFieldNoCopy(next.Object, "metadata", "annotations")
	if annotations, ok := annotations.(map[string]any); ok {
		delete(annotations, applyAnnotation(manager))
		delete(annotations, workv1.ManifestConfigSpecHashAnnotationKey)
	}
}

// sameWrite says whether two manifests for one object would be written alike.
func sameWrite(a, b *Manifest) bool {
	return a.Hash == b.Hash && a.Strategy == b.Strategy && a.FieldManager == b.FieldManager
}

// metadataDifferences gives the owner references to set, and what is wrong with
// the marks that we put on objects.
func metadataDifferences(m *Manifest, s Situation) ([]metav1.OwnerReference, []string) {
	var wrong []string
	refs, changed := withOwner(s.Live.Object.GetOwnerReferences(), s.Owner, m.Owned)
	if changed {
		wrong = append(wrong, "/metadata/ownerReferences")
	}
	if s.Live.Object.GetLabels()[object.AgentLabel] != s.AgentHash {
		wrong = append(wrong, "/metadata/labels/"+pointerEscapes.Replace(object.AgentLabel))
	}
	return refs, wrong
}

func setOwners(obj *unstructured.Unstructured, refs []metav1.OwnerReference) {
	if len(refs) == 0 {
		unstructured.RemoveNestedField(obj.Object, "metadata", "ownerReferences")
		return
	}
	obj.SetOwnerReferences(refs)
}

// mark sets the agent's label and, if it is named, the annotation for the hash of
// a manifest. Where labels or annotations are no object the API server is left to
// refuse them.
func mark(obj *unstructured.Unstructured, agentHash, annotation, hash string) {
	set(obj, "labels", object.AgentLabel, agentHash)
	if annotation != "" {
		set(obj, "annotations", annotation, hash)
	}
}

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

// withoutManagedFields gives the object without them, sharing the rest; nil for
// nil.
func withoutManagedFields(obj *unstructured.Unstructured) *unstructured.Unstructured {
	if obj == nil {
		return nil
	}
	metadata, ok := obj.Object["metadata"].(map[string]any)
	if !ok || metadata["managedFields"] == nil {
		return obj
	}
	content := make(map[string]any, len(obj.Object))
	for key, value := range obj.Object {
		content[key] = value
	}
	slim := make(map[string]any, len(metadata))
	for key, value := range metadata {
		if key != "managedFields" {
			slim[key] = value
		}
	}
	content["metadata"] = slim
	return &unstructured.Unstructured{Object: content}
}

// equalBodies says whether two bodies for one object ask for the same.
func equalBodies(a, b *unstructured.Unstructured) bool {
	return b != nil && digest(a.Object) == digest(b.Object)
}
