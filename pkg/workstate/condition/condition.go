// Package condition computes the status of a work. It is pure: the status is a function of the
// spec's generation, of the result of applying each manifest, of the observed objects, and of the
// previous status, from which it takes transition times.
//
//	status := condition.WorkStatus(condition.Input{Generation: 3, Manifests: manifests, Previous: &before, Now: now})
//
// Types, reasons and messages are API, because users' scripts and other controllers match them.
// docs/conditions.md lists them.
package condition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Presence describes what is known of an object on the cluster.
type Presence int

const (
	// Present: the object exists.
	Present Presence = iota
	// Missing: the object does not exist.
	Missing
	// Unreadable: the object could not be read, see Manifest.ReadError.
	Unreadable
	// Unresolved: the manifest's resource, version or name is unknown, so there is no object to
	// look for.
	Unresolved
	// Forbidden: whoever the manifest is applied for may not read the object. Nothing of the object
	// is reported, nor of what was before: it is not available, whether it exists or not.
	Forbidden
	// Undecided: whether it is Forbidden is not known, see Manifest.ReadError. As little is reported.
	Undecided
)

// Manifest describes the state of one manifest.
type Manifest struct {
	// Meta identifies the manifest.
	Meta workv1.ManifestResourceMeta
	// ApplyError is the error of applying it, or nil. IgnoreFields reports that the error is about
	// the manifest's ignoreFields.
	ApplyError   error
	IgnoreFields bool
	// Flapping says who undoes again and again what was applied; empty if nobody does. It is used
	// only if ApplyError is nil.
	Flapping string
	// Waiting says what the manifest waits for, or that its hook has failed; nil if it has been applied, and has run if it is a hook. It is
	// used only if ApplyError is nil.
	Waiting *Waiting
	// HasRun reports that the manifest is a hook that has run: its Job need not exist any more.
	HasRun bool
	// Warnings are about the manifest, which was applied in spite of them. With KeepWarnings they
	// are not known, because nothing was written: those reported for the same generation stay.
	Warnings     []string
	KeepWarnings bool
	// Presence of its object; ReadError goes with Unreadable and Undecided.
	Presence  Presence
	ReadError error
	// HasFeedback reports whether feedback values are requested. Values are those found in the
	// object, FeedbackError the reason why others were not found. They are used only if Presence is
	// Present: an Unreadable object keeps its previous values, any other has none.
	HasFeedback   bool
	Values        []workv1.FeedbackValue
	FeedbackError error
	// Rules lists the types of the conditions that the manifest's condition rules set, in their
	// order. Evaluated lists those conditions; their ObservedGeneration and LastTransitionTime are
	// set here. They are used only if Presence is Present: otherwise the conditions of Rules are
	// Unknown, except that Complete stays True unless Presence is Forbidden or Undecided. Types that
	// are BuiltIn are ignored.
	Rules     []string
	Evaluated []metav1.Condition
}

// Waiting is why a manifest that did not fail is not applied. With reason [workv1.ReasonHookFailed] it failed all the same.
type Waiting struct{ Reason, Message string }

// Input is the input of [WorkStatus].
type Input struct {
	// Generation of the spec of the manifests.
	Generation int64
	// Manifests in spec order.
	Manifests []Manifest
	// Warnings about the spec as a whole.
	Warnings []string
	// Blocked is why nothing new of the work is applied until somebody changes it; nil if it is.
	Blocked *Waiting
	// Readiness is watched: Progressing is False also if all objects exist, and no manifest has anything to wait for.
	Readiness bool
	// Previous status, for transition times; nil if there is none.
	Previous *workv1.ManifestWorkStatus
	// Now is the transition time of what has changed.
	Now metav1.Time
}

// WorkStatus returns the status of a work. The entries of the manifests are in spec order, each
// with Applied, Available, StatusFeedbackSynced if its object is present, and the conditions of its
// rules. The work has Applied, then Available and the aggregated conditions of the rules sorted by
// type.
func WorkStatus(in Input) workv1.ManifestWorkStatus {
	if in.Previous == nil {
		in.Previous = &workv1.ManifestWorkStatus{}
	}
	before := indexEntries(in.Previous.ResourceStatus.Manifests)
	entries := make([]workv1.ManifestCondition, len(in.Manifests))
	for i := range in.Manifests {
		entries[i] = entry(&in.Manifests[i], before.find(in.Manifests[i].Meta), in.Generation, in.Now)
	}
	cutMessages(entries)
	conditions := append(aggregateRules(entries, in.Generation), available(entries, in.Generation))
	if in.Readiness && meta.FindStatusCondition(conditions, workv1.WorkProgressing) == nil &&
		meta.IsStatusConditionTrue(conditions, workv1.WorkAvailable) && !meta.IsStatusConditionTrue(conditions, workv1.WorkDegraded) {
		conditions = append(conditions, metav1.Condition{Type: workv1.WorkProgressing, Status: metav1.ConditionFalse,
			Reason: workv1.ReasonConditionRulesAggregated, Message: "All objects are ready once they exist", ObservedGeneration: in.Generation})
	}
	if i := slices.IndexFunc(entries, waits); i >= 0 {
		conditions = withWaiting(conditions, meta.FindStatusCondition(entries[i].Conditions, workv1.ManifestApplied), in.Readiness)
	}
	slices.SortFunc(conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	overall := applied(entries, in.Warnings, in.Generation)
	if in.Blocked != nil {
		overall.Status, overall.Reason, overall.Message = metav1.ConditionFalse, in.Blocked.Reason, Cut(in.Blocked.Message, MaxMessage)
	}
	conditions = append([]metav1.Condition{overall}, conditions...)
	carryTimes(conditions, in.Previous.Conditions, in.Now)
	return workv1.ManifestWorkStatus{
		Conditions:     conditions,
		ResourceStatus: workv1.ManifestResourceStatus{Manifests: entries},
	}
}

// waits reports whether a manifest waits for others.
func waits(entry workv1.ManifestCondition) bool {
	return meta.IsStatusConditionPresentAndEqual(entry.Conditions, workv1.ManifestApplied, metav1.ConditionUnknown)
}

// withWaiting returns conditions, those of a work of which a manifest waits, as its condition Applied says: the work is progressing, if that
// is reported, and not complete, whatever the objects say that it has.
func withWaiting(conditions []metav1.Condition, applied *metav1.Condition, readiness bool) []metav1.Condition {
	waiting := metav1.Condition{Type: workv1.WorkProgressing, Status: metav1.ConditionTrue,
		Reason: applied.Reason, Message: applied.Message, ObservedGeneration: applied.ObservedGeneration}
	if c := meta.FindStatusCondition(conditions, workv1.WorkComplete); c != nil && c.Status == metav1.ConditionTrue {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, applied.Reason, applied.Message
	}
	if c := meta.FindStatusCondition(conditions, workv1.WorkProgressing); c != nil && c.Status != metav1.ConditionTrue {
		*c = waiting
	} else if c == nil && readiness {
		conditions = append(conditions, waiting)
	}
	return conditions
}

// WithDeleted returns status with the last condition of a work: its objects no longer exist on
// cluster.
func WithDeleted(status workv1.ManifestWorkStatus, cluster string, now metav1.Time) workv1.ManifestWorkStatus {
	status.Conditions = append([]metav1.Condition(nil), status.Conditions...)
	meta.RemoveStatusCondition(&status.Conditions, workv1.WorkDeletionHeld)
	meta.RemoveStatusCondition(&status.Conditions, workv1.WorkSpecUntrusted)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: workv1.WorkDeleted, Status: metav1.ConditionTrue, Reason: workv1.ReasonManifestsDeleted,
		Message: "The manifests are deleted from the cluster " + cluster, LastTransitionTime: now,
	})
	return status
}

// DeletingStatus returns the status of a work that is being deleted: the previous one with
// Deleting, and with Available according to presence: Present, Missing, Forbidden, or Unresolved,
// which does not change a manifest. Forbidden removes what the manifest's object has contributed.
// Conditions without a reason are removed: previous may be what is left of a status after a restart.
func DeletingStatus(previous workv1.ManifestWorkStatus, generation int64, presence func(workv1.ManifestResourceMeta) Presence, now metav1.Time) workv1.ManifestWorkStatus {
	status := *previous.DeepCopy()
	meta.RemoveStatusCondition(&status.Conditions, workv1.WorkDeletionHeld)
	meta.RemoveStatusCondition(&status.Conditions, workv1.WorkSpecUntrusted)
	entries := status.ResourceStatus.Manifests
	for i := range entries {
		found := presence(entries[i].ResourceMeta)
		if found == Unresolved {
			continue
		}
		if found == Forbidden {
			withdraw(&status, &entries[i], now)
		}
		c := manifestAvailable(&Manifest{Presence: found})
		c.LastTransitionTime = now
		meta.SetStatusCondition(&entries[i].Conditions, c)
	}
	conditions := []metav1.Condition{{Type: workv1.WorkDeleting, Status: metav1.ConditionTrue,
		Reason: workv1.ReasonWorkDeleting, Message: deletingMessage, ObservedGeneration: generation}}
	if len(entries) > 0 {
		conditions = append(conditions, available(entries, generation))
	}
	for _, c := range conditions {
		c.LastTransitionTime = now
		meta.SetStatusCondition(&status.Conditions, c)
	}
	Explain(&status)
	return status
}

// Explain removes the conditions without a reason, which the hub's API refuses. They are those of an AppliedManifestWork, which
// keeps the times of transitions only.
func Explain(status *workv1.ManifestWorkStatus) {
	unexplained := func(c metav1.Condition) bool { return c.Reason == "" }
	status.Conditions = slices.DeleteFunc(status.Conditions, unexplained)
	for i := range status.ResourceStatus.Manifests {
		entry := &status.ResourceStatus.Manifests[i]
		entry.Conditions = slices.DeleteFunc(entry.Conditions, unexplained)
	}
}

// withdraw removes from a status what the object of an entry has contributed.
func withdraw(status *workv1.ManifestWorkStatus, entry *workv1.ManifestCondition, now metav1.Time) {
	entry.StatusFeedbacks.Values = nil
	meta.RemoveStatusCondition(&entry.Conditions, workv1.ManifestStatusFeedbackSynced)
	for i := range entry.Conditions {
		own := &entry.Conditions[i]
		if !strings.HasPrefix(own.Reason, ruleReason) || own.Message == notEvaluatedMessage(Forbidden) {
			continue
		}
		unknown := metav1.Condition{
			Type: own.Type, Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRuleInternalError,
			Message: notEvaluatedMessage(Forbidden), ObservedGeneration: own.ObservedGeneration, LastTransitionTime: now,
		}
		if aggregated := meta.FindStatusCondition(status.Conditions, own.Type); aggregated != nil {
			of := unknown
			of.Reason, of.ObservedGeneration = workv1.ReasonConditionRulesAggregated, aggregated.ObservedGeneration
			meta.SetStatusCondition(&status.Conditions, of)
		}
		*own = unknown
	}
}

// WithDeletionHeld returns status, that of the spec in force, for a work that its source does not
// know and that the agent keeps for reason. previous is the status reported last.
func WithDeletionHeld(status, previous workv1.ManifestWorkStatus, generation int64, reason, message string, now metav1.Time) workv1.ManifestWorkStatus {
	return withLast(status, previous, now, metav1.Condition{
		Type: workv1.WorkDeletionHeld, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}

// WithSpecUntrusted returns status, that of the spec in force, for a work of which an event was
// refused because of its signature. previous is the status reported last.
func WithSpecUntrusted(status, previous workv1.ManifestWorkStatus, generation int64, reason, message string, now metav1.Time) workv1.ManifestWorkStatus {
	return withLast(status, previous, now, metav1.Condition{
		Type: workv1.WorkSpecUntrusted, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
	})
}

// withLast returns status with c as its last condition. previous is the status reported last.
func withLast(status, previous workv1.ManifestWorkStatus, now metav1.Time, c metav1.Condition) workv1.ManifestWorkStatus {
	last := []metav1.Condition{c}
	carryTimes(last, previous.Conditions, now)
	status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(other metav1.Condition) bool { return other.Type == c.Type })
	status.Conditions = append(status.Conditions, last...)
	return status
}

// InvalidStatus returns status, that of the spec in force, for a work whose spec of generation
// could not be decoded: Applied is False with the reason, by default InvalidManifestWork, and the
// decoder's message.
func InvalidStatus(status, previous workv1.ManifestWorkStatus, generation int64, reason, message string, now metav1.Time) workv1.ManifestWorkStatus {
	conditions := []metav1.Condition{{
		Type: workv1.WorkApplied, Status: metav1.ConditionFalse, Reason: cmp.Or(reason, workv1.ReasonInvalidManifestWork),
		Message: Cut(message, MaxMessage), ObservedGeneration: generation,
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
		Conditions:   []metav1.Condition{manifestApplied(m, before, generation), manifestAvailable(m)},
	}
	if synced, values, ok := feedback(m, before); ok {
		e.StatusFeedbacks.Values = values
		e.Conditions = append(e.Conditions, synced)
	}
	e.Conditions = append(e.Conditions, ruleConditions(m, before, generation)...)
	carryTimes(e.Conditions, before.Conditions, now)
	if !equality.Semantic.DeepEqual(before.StatusFeedbacks.Values, e.StatusFeedbacks.Values) {
		if c := meta.FindStatusCondition(e.Conditions, workv1.ManifestStatusFeedbackSynced); c != nil {
			c.LastTransitionTime = now
		}
	}
	return e
}

func manifestApplied(m *Manifest, before *workv1.ManifestCondition, generation int64) metav1.Condition {
	c := metav1.Condition{Type: workv1.ManifestApplied, ObservedGeneration: generation,
		Status: metav1.ConditionTrue, Reason: workv1.ReasonAppliedManifestComplete, Message: withWarnings(manifestComplete, m.Warnings)}
	old := meta.FindStatusCondition(before.Conditions, workv1.ManifestApplied)
	if m.KeepWarnings && len(m.Warnings) == 0 && old != nil && old.ObservedGeneration == generation && Warnings(old) != "" {
		c.Message = old.Message
	}
	switch {
	case m.ApplyError != nil && m.IgnoreFields:
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonAppliedManifestSSAIgnoreFieldError
		c.Message = "Failed to process ignoreFields: " + m.ApplyError.Error()
	case m.ApplyError != nil:
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonAppliedManifestFailed
		c.Message = "Failed to apply manifest: " + m.ApplyError.Error()
	case m.Waiting != nil && m.Waiting.Reason == workv1.ReasonHookFailed:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, m.Waiting.Reason, m.Waiting.Message
	case m.Waiting != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, m.Waiting.Reason, m.Waiting.Message
	case m.Flapping != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonFlapping, m.Flapping
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
		if m.HasRun {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, workv1.ReasonResourceAvailable, "The hook has run, and its Job is gone"
		}
	case Forbidden:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonResourceNotAvailable, "Resource is not available"
	case Unreadable, Undecided:
		c.Status, c.Reason = metav1.ConditionUnknown, workv1.ReasonFetchingResourceFailed
		c.Message = fmt.Sprintf("Failed to fetch resource: %v", m.ReadError)
	case Unresolved:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, workv1.ReasonIncompleteResourceMeta, "Resource meta is incomplete"
	}
	return c
}

// feedback returns the condition StatusFeedbackSynced and the values of a manifest, or false if it
// has neither. An object that cannot be read keeps its previous values as long as values are
// requested; Available Unknown says that they may be outdated.
func feedback(m *Manifest, before *workv1.ManifestCondition) (metav1.Condition, []workv1.FeedbackValue, bool) {
	synced := metav1.Condition{Type: workv1.ManifestStatusFeedbackSynced, Status: metav1.ConditionTrue}
	switch {
	case m.Presence == Missing, m.Presence == Unresolved, m.Presence == Forbidden, m.Presence == Undecided:
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

func applied(entries []workv1.ManifestCondition, warnings []string, generation int64) metav1.Condition {
	c := metav1.Condition{Type: workv1.WorkApplied, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: workv1.ReasonAppliedManifestWorkComplete, Message: workComplete}
	warned, failed, flapping, waiting := 0, 0, 0, 0
	var first *metav1.Condition        // of a manifest that waits
	var hook *workv1.ManifestCondition // that has failed
	for i := range entries {
		switch of := meta.FindStatusCondition(entries[i].Conditions, workv1.ManifestApplied); {
		case of == nil:
		case of.Status == metav1.ConditionFalse && of.Reason == workv1.ReasonFlapping:
			flapping++
		case of.Status == metav1.ConditionFalse && of.Reason == workv1.ReasonHookFailed:
			hook = cmp.Or(hook, &entries[i])
		case of.Status == metav1.ConditionUnknown:
			first = cmp.Or(first, of)
			waiting++
		case of.Status == metav1.ConditionFalse:
			failed++
		case Warnings(of) != "":
			warned++
		}
	}
	switch {
	case hook != nil:
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonHookFailed
		c.Message = fmt.Sprintf("%s %s/%s: %s", hook.ResourceMeta.Kind, hook.ResourceMeta.Namespace, hook.ResourceMeta.Name,
			meta.FindStatusCondition(hook.Conditions, workv1.ManifestApplied).Message)
	case failed > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, workv1.ReasonAppliedManifestWorkFailed, "Failed to apply manifest work"
	case flapping > 0:
		c.Status, c.Reason = metav1.ConditionFalse, workv1.ReasonFlapping
		c.Message = fmt.Sprintf("Others undo again and again what was applied; see Applied of %d of %d manifests", flapping, len(entries))
	case waiting > 0:
		c.Status, c.Reason = metav1.ConditionUnknown, first.Reason
		c.Message = fmt.Sprintf("%d of %d manifests are not applied yet. %s", waiting, len(entries), first.Message)
	}
	if warned > 0 {
		warnings = append(slices.Clip(warnings), fmt.Sprintf(seeManifests+"%d of %d manifests", warned, len(entries)))
	}
	c.Message = Cut(withWarnings(c.Message, warnings), MaxMessage)
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

// carryTimes sets the transition time of each condition to the one before if its status is the
// same, and to now otherwise.
func carryTimes(conditions, before []metav1.Condition, now metav1.Time) {
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime = now
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

// entryIndex finds the previous entry of a manifest: the one with the same identity, or else the
// only one with the same identity except for the ordinal.
type entryIndex map[workv1.ManifestResourceMeta][]*workv1.ManifestCondition // by identity with ordinal 0

func indexEntries(entries []workv1.ManifestCondition) entryIndex {
	index := make(entryIndex, len(entries))
	for i := range entries {
		m := entries[i].ResourceMeta
		m.Ordinal = 0
		index[m] = append(index[m], &entries[i])
	}
	return index
}

func (x entryIndex) find(m workv1.ManifestResourceMeta) *workv1.ManifestCondition {
	ordinal := m.Ordinal
	m.Ordinal = 0
	candidates := x[m]
	for _, e := range slices.Backward(candidates) {
		if e.ResourceMeta.Ordinal == ordinal {
			return e
		}
	}
	if len(candidates) == 1 {
		return candidates[0]
	}
	return nil
}
