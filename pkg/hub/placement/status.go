package placement

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// messageMax is how long the message of a condition gets; the API server takes
// 32768 characters.
const messageMax = 4096

// satisfied gives the status of p once groups are chosen.
func satisfied(p *clusterv1beta1.Placement, r *rules, o *outcome, groups []clusterv1beta1.DecisionGroupStatus) *clusterv1beta1.PlacementStatus {
	status := p.Status.DeepCopy()
	status.NumberOfSelectedClusters = int32(o.chosen)
	status.DecisionGroups = groups
	c := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
	}
	switch {
	case o.chosen >= r.wanted && (o.chosen > 0 || r.wanted == 0):
		c.Status, c.Reason = metav1.ConditionTrue, clusterv1beta1.ReasonAllDecisionsScheduled
		c.Message = "All cluster decisions scheduled"
	case o.chosen == 0:
		c.Reason = clusterv1beta1.ReasonNoManagedClusterMatched
		c.Message = "No ManagedCluster matches" + whyNot(o)
	default:
		c.Reason = clusterv1beta1.ReasonNotAllDecisionsScheduled
		c.Message = fmt.Sprintf("%d cluster decisions unscheduled", r.wanted-o.chosen) + whyNot(o)
	}
	meta.SetStatusCondition(&status.Conditions, c)
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: clusterv1beta1.PlacementConditionMisconfigured, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
		Reason: clusterv1beta1.ReasonSucceedConfigured, Message: "The spec can be followed",
	})
	return status
}

// misconfigured gives the status of p when its spec can not be followed: what was
// chosen before stays so.
func misconfigured(p *clusterv1beta1.Placement, fault error) *clusterv1beta1.PlacementStatus {
	status := p.Status.DeepCopy()
	text := strings.ReplaceAll(fault.Error(), "\n", "; ")
	if len(text) > messageMax {
		text = strings.ToValidUTF8(text[:messageMax], "") + " ..."
	}
	c := metav1.Condition{
		Type: clusterv1beta1.PlacementConditionSatisfied, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation,
		Reason: clusterv1beta1.ReasonMisconfigured, Message: "The spec can not be followed, the decisions stay as they were: " + text,
	}
	meta.SetStatusCondition(&status.Conditions, c)
	c.Type, c.Status = clusterv1beta1.PlacementConditionMisconfigured, metav1.ConditionTrue
	meta.SetStatusCondition(&status.Conditions, c)
	return status
}

// whyNot tells why clusters were not chosen. It names no numbers, which would
// change with every cluster and be written each time.
func whyNot(o *outcome) string {
	var why []string
	for fit, text := range [eligible]string{
		closed:     "are not accepted by the hub or are being deleted",
		unselected: "meet no predicate",
		tainted:    "have a taint that is not tolerated",
		keepable:   "have a taint NoSelectIfNew",
	} {
		if o.passedOver[fit] {
			why = append(why, text)
		}
	}
	if len(why) == 0 {
		return ": there are no others"
	}
	return ": other clusters " + strings.Join(why, ", or ")
}

// summary tells people how a choice has changed.
func summary(o *outcome, p *plan) string {
	text := fmt.Sprintf("%d clusters chosen, in %d decision groups", o.chosen, len(o.groups))
	for _, change := range []struct {
		what     string
		clusters []string
	}{{"added", p.added}, {"removed", p.removed}} {
		const named = 5
		if n := len(change.clusters); n > named {
			text += fmt.Sprintf("; %s: %s and %d more", change.what, strings.Join(change.clusters[:named], ", "), n-named)
		} else if n > 0 {
			text += fmt.Sprintf("; %s: %s", change.what, strings.Join(change.clusters, ", "))
		}
	}
	return text
}
