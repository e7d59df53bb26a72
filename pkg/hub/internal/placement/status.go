package placement

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// messageMax is the maximum length of a condition message. The API server accepts 32768 characters.
const messageMax = 4096

// scheduledStatus returns the status of p for a result of schedule.
func scheduledStatus(p *clusterv1beta1.Placement, r *rules, o *result, groups []clusterv1beta1.DecisionGroupStatus) *clusterv1beta1.PlacementStatus {
	status := p.Status.DeepCopy()
	status.NumberOfSelectedClusters = int32(o.chosen)
	status.DecisionGroups = groups
	c := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
	}
	unbound, why := unboundReason(p, r, o)
	switch {
	case unbound != "":
		c.Reason, c.Message = unbound, why
	case o.chosen >= r.wanted && (o.chosen > 0 || r.wanted == 0):
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1beta1.ReasonAllDecisionsScheduled
		c.Message = "All cluster decisions scheduled"
	case o.chosen == 0:
		c.Reason = clusterv1beta1.ReasonNoManagedClusterMatched
		c.Message = "No ManagedCluster matches" + skippedReasons(o)
	default:
		c.Reason = clusterv1beta1.ReasonNotAllDecisionsScheduled
		c.Message = fmt.Sprintf("%d cluster decisions unscheduled", r.wanted-o.chosen) + skippedReasons(o)
	}
	meta.SetStatusCondition(&status.Conditions, c)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: clusterv1beta1.PlacementConditionMisconfigured, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
		Reason: clusterv1beta1.ReasonSucceedConfigured, Message: "The spec is valid",
	})
	if r.bound.HasAll() { // not required: should they be again, the decisions are older
		meta.RemoveStatusCondition(&status.Conditions, clusterv1beta1.PlacementConditionBound)
		return status
	}
	bound := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionBound, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation,
		Reason: clusterv1beta1.ReasonClusterSetsBound, Message: "The clusters are of the sets " + joinSets(r.reach.Names()),
	}
	if unbound != "" {
		bound.Status, bound.Reason, bound.Message = metav1.ConditionFalse, unbound, why
	}
	meta.SetStatusCondition(&status.Conditions, bound)
	return status
}

// unboundReason returns why there are no clusters to choose from, for a condition; "" if there are.
func unboundReason(p *clusterv1beta1.Placement, r *rules, o *result) (reason, message string) {
	switch {
	case r.reach.HasAll() || o.members:
		return "", ""
	case r.bound.Empty():
		return clusterv1beta1.ReasonNoManagedClusterSetBindings, "No ManagedClusterSet is bound to the namespace"
	case r.reach.Empty():
		return clusterv1beta1.ReasonNoIntersection, fmt.Sprintf("None of the ManagedClusterSets %s is bound to the namespace", joinSets(p.Spec.ClusterSets))
	default:
		return clusterv1beta1.ReasonAllManagedClusterSetsEmpty, fmt.Sprintf("The ManagedClusterSets %s have no ManagedCluster", joinSets(r.reach.Names()))
	}
}

// joinSets joins up to ten names of sets.
func joinSets(names []string) string { return condition.First(names, 10, len(names), ", ") }

// keepsDecisions reports whether the decisions of p stay unchanged although it has no clusters to
// choose from: they were made by a hub that did not require cluster sets. Once they were made from
// bound sets, they follow these.
func keepsDecisions(p *clusterv1beta1.Placement, r *rules, o *result, before []group) bool {
	if reason, _ := unboundReason(p, r, o); reason == "" || len(before) == 0 {
		return false
	}
	// A Placement that was never scheduled has no decisions but forged ones.
	return !decidedFromSets(p) && meta.FindStatusCondition(p.Status.Conditions, clusterv1beta1.PlacementConditionSatisfied) != nil
}

// decidedFromSets reports whether the decisions of p were made from bound sets.
func decidedFromSets(p *clusterv1beta1.Placement) bool {
	bound := meta.FindStatusCondition(p.Status.Conditions, clusterv1beta1.PlacementConditionBound)
	return bound != nil && bound.Reason != clusterv1beta1.ReasonDecisionsKept
}

// keptStatus returns the status of p while its decisions are kept.
func keptStatus(p *clusterv1beta1.Placement, r *rules) *clusterv1beta1.PlacementStatus {
	status := p.Status.DeepCopy()
	reason, why := unboundReason(p, r, &result{})
	c := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, Reason: reason,
		Message: why + "; decisions are unchanged, and works of their clusters are neither changed nor deleted, until a set with clusters is bound",
	}
	meta.SetStatusCondition(&status.Conditions, c)
	c.Type, c.Reason = clusterv1beta1.PlacementConditionBound, clusterv1beta1.ReasonDecisionsKept
	meta.SetStatusCondition(&status.Conditions, c)
	return status
}

// misconfiguredStatus returns the status of p if its spec is invalid. The decisions stay unchanged.
func misconfiguredStatus(p *clusterv1beta1.Placement, err error) *clusterv1beta1.PlacementStatus {
	status := p.Status.DeepCopy()
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > messageMax {
		text = strings.ToValidUTF8(text[:messageMax], "") + " ..."
	}
	c := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
		Reason: clusterv1beta1.ReasonMisconfigured, Message: "The spec is invalid, decisions are unchanged: " + text,
	}
	meta.SetStatusCondition(&status.Conditions, c)
	c.Type, c.Status = clusterv1beta1.PlacementConditionMisconfigured, metav1.ConditionTrue
	meta.SetStatusCondition(&status.Conditions, c)
	return status
}

// skippedReasons explains why clusters were not chosen. It contains no numbers, so that the status
// does not change with every cluster.
func skippedReasons(o *result) string {
	var why []string
	for fit, text := range [eligible]string{
		outside:     "are in none of the cluster sets",
		notAccepted: "are not accepted by the hub or are being deleted",
		notSelected: "match no predicate",
		tainted:     "have a NoSelect taint that is not tolerated",
		keepable:    "have a NoSelectIfNew taint",
	} {
		if o.skipped[fit] {
			why = append(why, text)
		}
	}
	if o.skewed {
		why = append(why, "would exceed the skew of a spread constraint")
	}
	if o.lacking {
		why = append(why, "lack the label or claim of a spread constraint")
	}
	text := ": there are no other clusters"
	if len(why) > 0 {
		text = ": other clusters " + strings.Join(why, ", or ")
	}
	if o.fault != "" {
		text += "; " + o.fault
	}
	return text
}

// changeSummary describes a change of the decisions for events and logs.
func changeSummary(o *result, p *plan) string {
	text := fmt.Sprintf("%d clusters selected in %d decision groups", o.chosen, len(o.groups))
	for _, change := range []struct {
		verb     string
		clusters []string
	}{{"added", p.added}, {"removed", p.removed}} {
		if n := len(change.clusters); n > 0 {
			text += fmt.Sprintf("; %s: %s", change.verb, condition.First(change.clusters, 5, n, ", "))
		}
	}
	return text
}
