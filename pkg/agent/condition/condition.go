// Package condition makes a work's status. It is pure: the status is a function
// of the spec's generation, of what became of each manifest, of what is seen of
// each object, and of the status before, from which transition times are carried
// over.
//
//	status := condition.WorkStatus(condition.Input{Generation: 3, Manifests: manifests, Previous: &before, Now: now})
//
// Types, reasons and messages are API: users' scripts and other controllers
// match them. docs/conditions.md lists them.
package condition

import (
	"fmt"
	"sort"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Presence says what is known of an object on the cluster.
type Presence int

const (
	// Present: the object exists.
	Present Presence = iota
	// Missing: the object does not exist.
	Missing
	// Unreadable: it could not be read; Manifest.ReadError says why.
	Unreadable
	// Unresolved: the manifest's resource, version or name is not known, so
	// that there is nothing to look for.
	Unresolved
)

// Manifest is what became of one manifest.
type Manifest struct {
	// Meta identifies it.
	Meta workv1.ManifestResourceMeta
	// ApplyError is why it could not be applied, nil when it was. IgnoreFields says
	// that it is about the manifest's ignoreFields.
	ApplyError   error
	IgnoreFields bool
	// Presence is what is known of its object; ReadError goes with Unreadable.
	Presence  Presence
	ReadError error
	// HasFeedback reports that values are asked for. Values are those found in
	// the object, FeedbackError why others were not. They count only when Presence
	// is Present: of an object that is Unreadable the values before are kept, of any
	// other there are none.
	HasFeedback   bool
	Values        []workv1.FeedbackValue
	FeedbackError error
	// Rules are the types of the conditions that the manifest's condition rules
	// set, in their order. Evaluated are those conditions; their ObservedGeneration
	// and LastTransitionTime are set here. They count only when Presence is Present:
	// otherwise a condition of Rules is Unknown, but for Complete that was True.
	// Types that are BuiltIn are left out.
	Rules     []string
	Evaluated []metav1.Condition
}

// Input is what a work's status is made of.
type Input struct {
	// Generation of the spec that the manifests are of.
	Generation int64
	// Manifests in spec order.
	Manifests []Manifest
	// Previous status, for transition times; nil when there is none.
	Previous *workv1.ManifestWorkStatus
	// Deleting reports that the work is being deleted.
	Deleting bool
	// Now stamps what changes.
	Now metav1.Time
}

// Work makes the status of a work. Entries of manifests stand in spec order,
// each with Applied, Available, StatusFeedbackSynced when its object is seen, and
// the conditions of its rules. The work has Applied, then Available and the
// aggregates of the rules by name, then Deleting.
func WorkStatus(in Input) workv1.ManifestWorkStatus {
	if in.Previous == nil {
		in.Previous = &workv1.ManifestWorkStatus{}
	}
	before := indexEntries(in.Previous.ResourceStatus.Manifests)
	entries := make([]workv1.ManifestCondition, len(in.Manifests))
	for i := range in.Manifests {
		entries[i] = entry(&in.Manifests[i], before.find(in.Manifests[i].Meta), in.Generation, in.Now)
	}
	conditions := append(aggregateRules(entries, in.Generation), available(entries, in.Generation))
	sort.Slice(conditions, func(i, j int) bool { return conditions[i].Type < conditions[j].Type })
	conditions = append([]metav1.Condition{applied(entries, in.Generation)}, conditions...)
	if in.Deleting {
		conditions = append(conditions, Deleting(in.Generation))
	}
	carryTimes(conditions, in.Previous.Conditions, in.Now)
	return workv1.ManifestWorkStatus{
		Conditions:     conditions,
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: entries},
	}
}

// Deleting is the condition of a work whose objects are being removed.
func Deleting(generation int64) metav1.Condition {
	return metav1.Condition{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue,
		Reason: workv1.ReasonWorkDeleting, Message: "ManifestWork is being deleted", ObservedGeneration: generation}
}

// Deleted adds to status the last condition of a work: its objects are gone from
// cluster.
func WithDeleted(status workv1.ManifestWorkStatus, cluster string, now metav1.Time) workv1.ManifestWorkStatus {
	status.Conditions = append([]metav1.Condition(nil), status.Conditions...)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: workv1.WorkDeleted, Status: metav1.ConditionTrue, Reason: workv1.ReasonManifestsDeleted,
		Message: "The manifests are deleted from the cluster " + cluster, LastTransitionTime: now,
	})
	return status
}

// Removing is the status of a work that is being deleted: what was, with
// Available as sight says, and Deleting. Presence Unresolved leaves a manifest as it
// was.
func DeletingStatus(previous workv1.ManifestWorkStatus, generation int64, sight func(workv1.ManifestResourceMeta) Presence, now metav1.Time) workv1.ManifestWorkStatus {
	status := *previous.DeepCopy()
	entries := status.ResourceStatus.Manifests
	for i := range entries {
		seen := sight(entries[i].ResourceMeta)
		if seen == Unresolved {
			continue
		}
		c := manifestAvailable(&Manifest{Presence: seen})
		c.LastTransitionTime = now
		meta.SetStatusCondition(&entries[i].Conditions, c)
	}
	conditions := []metav1.Condition{Deleting(generation)}
	if len(entries) > 0 {
		conditions = append(conditions, available(entries, generation))
	}
	for _, c := range conditions {
		c.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// Refused is status, what is in force, with the word that the spec of generation
// could not be decoded: Applied is False with reason InvalidManifestWork and the
// decoder's message.
func InvalidStatus(status, previous workv1.ManifestWorkStatus, generation int64, message string, now metav1.Time) workv1.ManifestWorkStatus {
	conditions := []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: workv1.ReasonInvalidManifestWork,
		Message: message, ObservedGeneration: generation,
	}}
	carryTimes(conditions, previous.Conditions, now)
	for _, c := range status.Conditions {
		if c.Type != workv1.WorkApplied {
			conditions = append(conditions, c)
		}
	}
	return workv1.ManifestWorkStatus{Conditions: conditions, ResourceStatus: status.ResourceStatus}
}

func entry(m *Manifest, before *workv1.ManifestCondition, generation int64, now metav1.Time) workv1.ManifestCondition {
	if before == nil {
		before = &workv1.ManifestCondition{}
	}
	e := workv1.ManifestCondition{
		ResourceMeta: m.Meta,
		Conditions:   []metav1.Condition{manifestApplied(m, generation), manifestAvailable(m)},
	}
	if synced, values, ok := feedback(m, before); ok {
		e.StatusFeedbacks.Values = values
		e.Conditions = append(e.Conditions, synced)
	}
	e.Conditions = append(e.Conditions, ruled(m, before, generation)...)
	carryTimes(e.Conditions, before.Conditions, now)
	if !equality.Semantic.DeepEqual(before.StatusFeedbacks.Values, e.StatusFeedbacks.Values) {
		if c := meta.FindStatusCondition(e.Conditions, workv1.ManifestStatusFeedbackSynced); c != nil {
			c.LastTransitionTime = now
		}
	}
	return e
}

func manifestApplied(m *Manifest, generation int64) metav1.Condition {
	c := metav1.Condition{Type: workv1.ManifestApplied, ObservedGeneration: generation,
		Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestComplete, Message: "Apply manifest complete"}
	if m.ApplyError != nil {
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonAppliedManifestFailed
		c.Message = "Failed to apply manifest: " + m.ApplyError.Error()
		if m.IgnoreFields {
			c.Reason = workv1.ReasonAppliedManifestSSAIgnoreFieldError
			c.Message = "Failed to process ignoreFields: " + m.ApplyError.Error()
		}
	}
	return c
}

func manifestAvailable(m *Manifest) metav1.Condition {
	c := metav1.Condition{Type: workv1.ManifestAvailable}
	switch m.Presence {
	case Present:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, workv1.ReasonResourceAvailable, "Resource is available"
	case Missing:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonResourceNotAvailable, "Resource is not available"
	case Unreadable:
		c.Status, c.Reason = metav1.ConditionUnknown, workv1.ReasonFetchingResourceFailed
		c.Message = fmt.Sprintf("Failed to fetch resource: %v", m.ReadError)
	case Unresolved:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, workv1.ReasonIncompleteResourceMeta, "Resource meta is incomplete"
	}
	return c
}

// feedback gives the values of a manifest and the condition that goes with them;
// false if there is neither. An object that can not be read now has those that it
// had, as far as values are still asked for: that they may be old is what
// Available Unknown says.
func feedback(m *Manifest, before *workv1.ManifestCondition) (metav1.Condition, []workv1.FeedbackValue, bool) {
	synced := metav1.Condition{Type: workv1.ManifestStatusFeedbackSynced, Status: metav1.ConditionTrue}
	switch {
	case m.Presence == Missing, m.Presence == Unresolved:
		return synced, nil, false
	case m.Presence == Unreadable:
		old := meta.FindStatusCondition(before.Conditions, workv1.ManifestStatusFeedbackSynced)
		if old == nil {
			return synced, nil, false
		}
		if m.HasFeedback {
			return *old, before.StatusFeedbacks.Values, true
		}
		synced.Reason = workv1.ReasonNoStatusFeedbackSynced
		return synced, nil, true
	case !m.HasFeedback:
		synced.Reason = workv1.ReasonNoStatusFeedbackSynced
	case m.FeedbackError != nil:
		synced.Status, synced.Reason = metav1.ConditionFalse, workv1.ReasonStatusFeedbackSyncFailed
		synced.Message = "Sync status feedback failed with error " + m.FeedbackError.Error()
	default:
		synced.Reason = workv1.ReasonStatusFeedbackSynced
	}
	return synced, m.Values, true
}

func applied(entries []workv1.ManifestCondition, generation int64) metav1.Condition {
	c := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: workv1.ReasonAppliedManifestWorkComplete, Message: "Apply manifest work complete"}
	for i := range entries {
		if meta.IsStatusConditionFalse(entries[i].Conditions, workv1.ManifestApplied) {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "Failed to apply manifest work"
		}
	}
	return c
}

func available(entries []workv1.ManifestCondition, generation int64) metav1.Condition {
	missing, unknown := 0, 0
	for i := range entries {
		switch c := meta.FindStatusCondition(entries[i].Conditions, workv1.ManifestAvailable); {
		case c == nil || c.Status == metav1.ConditionUnknown:
			unknown++
		case c.Status == metav1.ConditionFalse:
			missing++
		}
	}
	c := metav1.Condition{Type: workv1.WorkAvailable, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: workv1.ReasonResourcesAvailable, Message: "All resources are available"}
	switch {
	case missing > 0:
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonResourcesNotAvailable
		c.Message = fmt.Sprintf("%d of %d resources are not available", missing, len(entries))
	case unknown > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, workv1.ReasonResourcesStatusUnknown
		c.Message = fmt.Sprintf("%d of %d resources have unknown status", unknown, len(entries))
	case len(entries) == 0:
		c.Status, c.Reason = metav1.ConditionUnknown, workv1.ReasonResourcesStatusUnknown
		c.Message = "cannot get any available resource "
	}
	return c
}

// carryTimes gives each condition the transition time that it had before if its
// status is the same, else now.
func carryTimes(conditions, before []metav1.Condition, now metav1.Time) {
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime = now
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

// entryIndex finds the entry that a manifest had before: by equal identity, else
// by equal identity but for the ordinal where that is unique.
type entryIndex struct {
	exact   map[workv1.ManifestResourceMeta]*workv1.ManifestCondition
	unplace map[workv1.ManifestResourceMeta][]*workv1.ManifestCondition
}

func indexEntries(entries []workv1.ManifestCondition) entryIndex {
	index := entryIndex{
		exact:   make(map[workv1.ManifestResourceMeta]*workv1.ManifestCondition, len(entries)),
		unplace: make(map[workv1.ManifestResourceMeta][]*workv1.ManifestCondition, len(entries)),
	}
	for i := range entries {
		m := entries[i].ResourceMeta
		index.exact[m] = &entries[i]
		m.Ordinal = 0
		index.unplace[m] = append(index.unplace[m], &entries[i])
	}
	return index
}

func (x entryIndex) find(m workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	if e, ok := x.exact[m]; ok {
		return e
	}
	m.Ordinal = 0
	if candidates := x.unplace[m]; len(candidates) == 1 {
		return candidates[0]
	}
	return nil
}
