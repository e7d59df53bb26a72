package condition

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// ruleReason begins the reason of every condition that a rule has set.
const ruleReason = "ConditionRule"

// BuiltIn reports whether conditions of a type are set by the agent itself, so
// that no condition rule may.
func BuiltIn(kind string) bool {
	switch kind {
	case workv1.ManifestApplied, workv1.ManifestAvailable, workv1.ManifestStatusFeedbackSynced, workv1.WorkDeleting, workv1.WorkDeleted:
		return true
	}
	return false
}

// WasComplete indexes a status, which may be nil, and gives the function that
// says whether the manifest of an identity was complete in it: whether its
// condition Complete was True by a rule. An entry is a manifest's by equal
// identity, else by equal identity but for the ordinal where that is unique. No
// more is read of a condition than its type, status and reason. The function is
// safe for concurrent use as long as the status does not change.
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

// completion is the condition by which a manifest was complete, nil if it was
// not.
func completion(entry *workv1.ManifestCondition) *metav1.Condition {
	c := meta.FindStatusCondition(entry.Conditions, workv1.ManifestComplete)
	if c == nil || c.Status != metav1.ConditionTrue || !strings.HasPrefix(c.Reason, ruleReason) {
		return nil
	}
	return c
}

// ruled gives the conditions that a manifest's rules set. Where there is no
// object to evaluate them on they are Unknown, lest old ones count. A completion
// stays: a finished Job may be cleaned up.
func ruled(m *Manifest, before *workv1.ManifestCondition, generation int64) []metav1.Condition {
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
			Reason: workv1.ReasonConditionRuleInternalError, Message: unseen(m.Presence)}
		if kind == workv1.ManifestComplete {
			if done := completion(before); done != nil {
				c = *done
			}
		}
		add(c)
	}
	return conditions
}

// unseen says why the rules of an object could not be evaluated.
func unseen(sight Presence) string {
	switch sight {
	case Missing:
		return "The object does not exist"
	case Unresolved:
		return "The kind of the object is not known"
	default:
		return "The object can not be read"
	}
}

// aggregateRules makes the work's conditions of those that the rules of
// generation gave its manifests, in no order.
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
	for kind, of := range byType {
		c := metav1.Condition{Type: kind, Status: aggregate(kind, of), ObservedGeneration: generation,
			Reason: workv1.ReasonConditionRulesAggregated, Message: fmt.Sprintf("Aggregated from %d manifest conditions", len(of))}
		if len(of) == 1 {
			c.Message = of[0].Message
		}
		conditions = append(conditions, c)
	}
	return conditions
}

// aggregate gives the status of a work's condition: that of one of its
// manifests' conditions which decides, else Unknown if one is, else what all are.
// False decides. Of Progressing and Degraded it is True: a work is degraded if
// any part of it is.
func aggregate(kind string, of []*metav1.Condition) metav1.ConditionStatus {
	decides, rest := metav1.ConditionFalse, metav1.ConditionTrue
	if kind == workv1.WorkProgressing || kind == workv1.WorkDegraded {
		decides, rest = rest, decides
	}
	for _, c := range of {
		switch c.Status {
		case decides:
			return decides
		case metav1.ConditionUnknown:
			rest = metav1.ConditionUnknown
		}
	}
	return rest
}
