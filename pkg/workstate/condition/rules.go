package condition

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// ruleReason is the prefix of the reasons of conditions that rules set.
const ruleReason = "ConditionRule"

// BuiltIn reports whether the agent itself, or the hub, sets conditions of this type, so that condition
// rules must not.
func BuiltIn(kind string) bool {
	switch kind {
	case workv1.ManifestApplied, workv1.ManifestAvailable, workv1.ManifestStatusFeedbackSynced,
		workv1.WorkDeletionHeld, workv1.WorkSpecUntrusted, workv1.WorkDeleting, workv1.WorkDeleted, workv1.WorkDelivered:
		return true
	}
	return false
}

// WasComplete returns the function that reports whether a manifest was complete in previous, which
// may be nil: whether a rule had set its condition Complete to True. The entry of a manifest is the
// one with the same identity, or else the only one with the same identity except for the ordinal.
// The function reads only type, status and reason of conditions, and is safe for concurrent use
// while previous does not change.
func WasComplete(previous *workv1.ManifestWorkStatus) func(workv1.ManifestResourceMeta) bool {
	if previous == nil {
		return func(workv1.ManifestResourceMeta) bool { return false }
	}
	before := indexEntries(previous.ResourceStatus.Manifests)
	return func(m workv1.ManifestResourceMeta) bool {
		entry := before.find(m)
		return entry != nil && completion(entry) != nil
	}
}

// AnyComplete reports whether a manifest is complete in status.
func AnyComplete(status *workv1.ManifestWorkStatus) bool {
	return slices.ContainsFunc(status.ResourceStatus.Manifests, func(m workv1.ManifestCondition) bool { return completion(&m) != nil })
}

// TrueSince returns the function that returns since when the condition of that type of a manifest
// is True in previous, and false if it is not. Entries are found as for [WasComplete].
func TrueSince(previous *workv1.ManifestWorkStatus, kind string) func(workv1.ManifestResourceMeta) (time.Time, bool) {
	before := indexEntries(previous.ResourceStatus.Manifests)
	return func(m workv1.ManifestResourceMeta) (time.Time, bool) {
		entry := before.find(m)
		if entry == nil {
			return time.Time{}, false
		}
		c := meta.FindStatusCondition(entry.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue {
			return time.Time{}, false
		}
		return c.LastTransitionTime.Time, true
	}
}

// completion returns the condition by which a manifest was complete, or nil.
func completion(entry *workv1.ManifestCondition) *metav1.Condition {
	c := meta.FindStatusCondition(entry.Conditions, workv1.ManifestComplete)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Reason, ruleReason) {
		return nil
	}
	return c
}

// ruleConditions returns the conditions that the rules of a manifest set. Without an object they
// are Unknown, so that old ones are not used. Complete stays True, because a finished Job may be
// deleted; but not if the object is Forbidden or Undecided.
func ruleConditions(m *Manifest, before *workv1.ManifestCondition, generation int64) []metav1.Condition {
	var conditions []metav1.Condition
	add := func(c metav1.Condition) {
		if c.Type == "" || BuiltIn(c.Type) || meta.FindStatusCondition(conditions, c.Type) != nil {
			return
		}
		c.ObservedGeneration = generation
		conditions = append(conditions, c)
	}
	if m.Presence == Present {
		for _, c := range m.Evaluated {
			add(c)
		}
		return conditions
	}
	for _, kind := range m.Rules {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionUnknown,
			Reason: workv1.ReasonConditionRuleInternalError, Message: notEvaluatedMessage(m.Presence)}
		if kind == workv1.ManifestComplete && m.Presence != Forbidden && m.Presence != Undecided {
			if done := completion(before); done != nil {
				c = *done
			}
		}
		add(c)
	}
	return conditions
}

// notEvaluatedMessage returns why the rules of an object could not be evaluated.
func notEvaluatedMessage(presence Presence) string {
	switch presence {
	case Missing:
		return "The object does not exist"
	case Forbidden:
		return "The executor may not get the object"
	case Unresolved:
		return "The kind of the object is not known"
	default:
		return "The object cannot be read"
	}
}

// aggregateRules returns the work's conditions that aggregate those set by the rules of generation,
// in no order.
func aggregateRules(entries []workv1.ManifestCondition, generation int64) []metav1.Condition {
	byType := map[string][]*metav1.Condition{}
	for i := range entries {
		for j := range entries[i].Conditions {
			c := &entries[i].Conditions[j]
			if strings.HasPrefix(c.Reason, ruleReason) && c.ObservedGeneration == generation {
				byType[c.Type] = append(byType[c.Type], c)
			}
		}
	}
	var conditions []metav1.Condition
	for kind, conditionsOfType := range byType {
		c := metav1.Condition{Type: kind, Status: aggregate(kind, conditionsOfType), ObservedGeneration: generation,
			Reason: workv1.ReasonConditionRulesAggregated, Message: fmt.Sprintf("Aggregated from %d manifest conditions", len(conditionsOfType))}
		if len(conditionsOfType) == 1 {
			c.Message = conditionsOfType[0].Message
		}
		conditions = append(conditions, c)
	}
	return conditions
}

// aggregate returns the status of a work's condition from those of its manifests: the deciding
// status if any of them has it, else Unknown if any is, else the status that all have. The deciding
// status is False, but True for Progressing and Degraded: a work is degraded if any part of it is.
func aggregate(kind string, conditions []*metav1.Condition) metav1.ConditionStatus {
	decides, rest := metav1.ConditionFalse, metav1.ConditionTrue
	if kind == workv1.WorkProgressing || kind == workv1.WorkDegraded {
		decides, rest = rest, decides
	}
	for _, c := range conditions {
		switch c.Status {
		case decides:
			return decides
		case metav1.ConditionUnknown:
			rest = metav1.ConditionUnknown
		}
	}
	return rest
}
