// Package plan decides how the cluster comes to hold what a manifest declares. It is pure: it has
// no client, and package apply carries its decisions out.
//
// [Next] compares a manifest with the live object, as far as it is known, and returns the next
// [Step]: nothing, a read or one write. [Recover] decides what follows a write that failed.
// [NextRemoval] is the counterpart for objects that have to be removed, and [HoldRemovals] has
// them wait for each other.
//
// # Update
//
// Every kind is treated alike, as JSON. Each field that the manifest declares gets its value:
// objects field by field, lists item by item and in length. Undeclared fields are left to the API
// server and to other actors. A field that an earlier version of the manifest declared, and this
// one does not, is removed unless another field manager owns it; the API server sets its default.
// Where the API server stores another value than the declared one (a default, a normalized
// quantity, a mutating webhook), its answer to the write says so, and that value is not treated as
// drift.
//
// Labels and annotations of others stay. So do those that the manifest no longer has; a key that
// ends in "-" removes the key without it. Finalizers are set on creation only. The status of an
// existing object is never written. Package fields names the few kinds that have rules of their
// own.
//
// # Server-side apply
//
// The API server merges. Fields that Update wrote before are migrated first, so that they neither
// conflict nor stay behind. With ignoreFields an object is applied only when its manifest changes;
// ignored fields then keep their values.
//
// # Deletion
//
// No object is deleted and created again, unless the manifest's annotation allows it and the API
// server refuses an update because fields are immutable.
package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Verb is the action of a [Step].
type Verb int

const (
	// Keep the object as it is: there is nothing to do.
	Keep Verb = iota
	// Read the whole object and plan again.
	Read
	// Create the object: POST.
	Create
	// Update the object: PUT, guarded by its uid and resourceVersion.
	Update
	// Apply the manifest: a server-side apply PATCH.
	Apply
	// PatchMetadata sets owner references and the agent's label only: a merge PATCH, guarded as
	// Update is.
	PatchMetadata
	// MigrateManagedFields turns fields that the agent wrote otherwise into fields of its
	// server-side apply: a JSON PATCH of managedFields, guarded by resourceVersion.
	MigrateManagedFields
	// Recreate the object: DELETE, then plan again.
	Recreate
)

var verbNames = [...]string{"Keep", "Read", "Create", "Update", "Apply", "PatchMetadata", "MigrateManagedFields", "Recreate"}

// String returns the verb's name.
func (v Verb) String() string { return verbNames[v] }

// Step is the next action for a manifest.
type Step struct {
	Verb Verb
	// Object is the body of Create, Update, Apply and PatchMetadata, and the object that replaces
	// the one to Recreate; otherwise nil.
	Object *unstructured.Unstructured
	// Differences are the JSON pointers, sorted, of live fields that are not as declared. Empty if
	// the object does not exist, or if only the manifest has changed.
	Differences []string
	// Err is the reason why no step helps; the other fields are zero then.
	Err error
}

// State is the knowledge from which a step is planned.
type State struct {
	// Live is the object.
	Live object.Live
	// Complete reports that Live comes from a read of the whole object: if it is Present it has
	// managedFields, if it is Absent it does not exist.
	Complete bool
	// Previous is the manifest that was last applied to the object for the work; nil if it is not
	// known.
	Previous *strategy.Manifest
	// FieldsDigest is what is known of the manifests last applied to the object if Previous is not,
	// as [FieldsDigest] returned it; empty: nothing.
	FieldsDigest string
	// Owner is the owner reference that owned objects carry.
	Owner metav1.OwnerReference
	// AgentHash is the value of the label that applied objects carry.
	AgentHash string
	// Force makes server-side apply take fields over from other managers.
	Force bool
	// Normalized are the fields that the API server stored with other values; nil if there are
	// none, or if they are not known.
	Normalized *NormalizedFields
	// Refused is the last update that the API server refused as invalid: fields left from an
	// earlier manifest, or defaults that belong to them, may contradict this one.
	Refused *Refusal
}

// Refusal is an update that the API server refused as invalid.
type Refusal struct {
	Object *unstructured.Unstructured
	Err    error
}

// NormalizedFields are the fields of one manifest that the API server stored with other values than
// the declared ones.
type NormalizedFields struct {
	hash   string // Manifest.Hash
	fields fields.Normalized
}

// Normalize returns the fields that the API server stored with other values, given its answer to
// the write of a manifest; nil if there are none.
func Normalize(m *strategy.Manifest, answer *unstructured.Unstructured) *NormalizedFields {
	if normalized := rulesFor(m, answer).Normalized(m.Desired, answer); normalized != nil {
		return &NormalizedFields{hash: m.Hash, fields: normalized}
	}
	return nil
}

func differences(m *strategy.Manifest, s *State) []string {
	var normalized fields.Normalized
	if s.Normalized != nil && s.Normalized.hash == m.Hash {
		normalized = s.Normalized.fields
	}
	return rulesFor(m, s.Live.Object).Differences(m.Desired, s.Live.Object, normalized)
}

// rulesFor returns the rules for a manifest's kind. There are none where the API server merges.
func rulesFor(m *strategy.Manifest, live *unstructured.Unstructured) *fields.Rules {
	if m.Strategy == workv1.UpdateStrategyTypeServerSideApply {
		return &fields.Rules{}
	}
	return fields.RulesFor(m.Desired, live)
}

// managers returns the field managers under which the work may have written the object: the current
// one, that of the previous manifest, and the default one on an object that no other work owns.
func (s *State) managers(m *strategy.Manifest) []string {
	managers := []string{m.Manager()}
	if s.Previous != nil {
		managers = append(managers, s.Previous.Manager())
	}
	if s.Live.State == object.Present && !s.shared() && ownership.Has(s.Live.Object, s.Owner.UID) {
		managers = append(managers, workv1.DefaultFieldManager)
	}
	return managers
}

// shared reports whether another work owns the live object too.
func (s *State) shared() bool { return ownership.Shared(s.Live.Object, s.Owner) }

// Next returns the next step towards what a manifest declares. It does not change its arguments,
// and its bodies share nothing with them. The manifest must have no Err.
func Next(m *strategy.Manifest, s State) Step {
	step := next(m, &s)
	if s.Refused == nil || s.Live.State != object.Present || step.Err != nil || step.Verb == Read ||
		step.Verb == Update && fields.Digest(step.Object.Object) != fields.Digest(s.Refused.Object.Object) {
		return step
	}
	return planRecreate(m, &s)
}

func next(m *strategy.Manifest, s *State) Step {
	switch {
	case m.Strategy == workv1.UpdateStrategyTypeReadOnly:
		return Step{}
	case m.Hook != "":
		return planRun(m, s)
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

// IsRepair reports whether a step undoes changes that others made to an object, rather than follow
// a change of the manifest.
func IsRepair(step Step, m *strategy.Manifest, s State) bool {
	return len(step.Differences) > 0 && s.Previous != nil && sameWrite(m, s.Previous)
}

// Changed reports whether a manifest is known to differ from previous, which was applied last; nil: nothing is known.
func Changed(m, previous *strategy.Manifest) bool {
	return previous != nil && m.Strategy != workv1.UpdateStrategyTypeReadOnly && !sameWrite(m, previous)
}

// sameWrite reports whether two manifests for one object are written alike.
func sameWrite(a, b *strategy.Manifest) bool {
	return a.Hash == b.Hash && a.Strategy == b.Strategy && a.FieldManager == b.FieldManager
}

// planCreate is for an object that is not known to exist. The POST comes first: it is right in
// nearly all cases and fails otherwise. An object that was applied before, and of which nothing is
// known now, probably exists and is read first. So is the object of a manifest with a
// resourceVersion, with which a POST fails in any case.
func planCreate(m *strategy.Manifest, s *State) Step {
	likely := s.Live.State == object.Unknown && s.Previous != nil
	if !s.Complete && (likely || m.Desired.GetResourceVersion() != "") {
		return Step{Verb: Read}
	}
	return Step{Verb: Create, Object: newObject(m, s)}
}

// newObject returns the body that creates an object.
func newObject(m *strategy.Manifest, s *State) *unstructured.Unstructured {
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
	set(body, "labels", object.AgentLabel, s.AgentHash)
	if m.Run != "" {
		set(body, "annotations", workv1.HookSpecAnnotationKey, m.Run)
		set(body, "annotations", workv1.HookOfAnnotationKey, s.Owner.Name)
	}
	return body
}

// planAdopt is for an object whose content is not changed.
func planAdopt(m *strategy.Manifest, s *State) Step {
	refs, wrong := metadataDifferences(m, s)
	if len(wrong) == 0 {
		return Step{}
	}
	next := s.Live.Object.DeepCopy()
	next.SetManagedFields(nil)
	setOwners(next, refs)
	set(next, "labels", object.AgentLabel, s.AgentHash)
	return Step{Verb: Update, Object: next, Differences: wrong}
}

// planUpdate is for an object that is to hold the content that the manifest declares.
func planUpdate(m *strategy.Manifest, s *State) Step {
	live := s.Live.Object
	changed := !s.shared() && !s.wasApplied(m)
	prune := s.Refused != nil || changed
	var previous *unstructured.Unstructured
	if s.Previous != nil {
		previous = s.Previous.Desired
		changed = !sameWrite(m, s.Previous)
		prune = s.Refused != nil || changed && !s.shared() && fields.DropsField(previous, m.Desired)
	}
	if prune && !s.Complete {
		return Step{Verb: Read}
	}
	refs, wrong := metadataDifferences(m, s)
	wrong = append(wrong, differences(m, s)...)
	if len(wrong) == 0 && !changed && !prune {
		return Step{}
	}
	rules := rulesFor(m, live)
	next := live.DeepCopy()
	next.SetManagedFields(nil)
	var pruned []string
	if prune {
		pruned = ownership.Updated(live, s.managers(m)).Prune(next, m.Desired, rules)
	}
	if len(wrong)+len(pruned) == 0 && !changed {
		return Step{}
	}
	if m.RecreateOnImmutable && live.GetDeletionTimestamp() != nil {
		return Step{Err: AwaitingDeletion(m, live)}
	}
	if !s.shared() { // the hash of ignoreFields is not true any more
		unstructured.RemoveNestedField(next.Object, "metadata", "annotations", workv1.ManifestConfigSpecHashAnnotationKey)
	}
	rules.Merge(next, live, m.Desired, previous, changed)
	setOwners(next, refs)
	set(next, "labels", object.AgentLabel, s.AgentHash)
	wrong = append(wrong, pruned...)
	slices.Sort(wrong)
	return Step{Verb: Update, Object: next, Differences: slices.Compact(wrong)}
}

// planRecreate is for an object whose update the API server refuses in every form.
func planRecreate(m *strategy.Manifest, s *State) Step {
	refusal, live := s.Refused.Err, s.Live.Object
	switch {
	case !m.RecreateOnImmutable || !IsImmutable(refusal):
		return Step{Err: refusal}
	case s.shared():
		return Step{Err: fmt.Errorf("%w; the object is another work's too, so it is not recreated", refusal)}
	case live.GetDeletionTimestamp() != nil:
		return Step{Err: AwaitingDeletion(m, live)}
	}
	return Step{Verb: Recreate, Object: newObject(m, s)}
}

// AwaitingDeletion returns the error of a manifest whose object is to be created again once its
// deletion is complete.
func AwaitingDeletion(m *strategy.Manifest, live *unstructured.Unstructured) error {
	holder := "is ending gracefully"
	if at := live.GetDeletionTimestamp(); at != nil {
		holder += ", by " + at.UTC().Format(time.RFC3339)
	}
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		holder = "is held by its finalizers " + strings.Join(finalizers, ", ")
	}
	return fmt.Errorf("%s is being deleted, to be recreated for a change of immutable fields, but %s", m.Ref, holder)
}
