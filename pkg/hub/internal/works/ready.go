package works

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// setReady sets the condition Ready of status, which is to be stored in work, to the sum of the others, Stalled if no
// retry helps, and observedGeneration to what they are about. Those of condition rules stay.
func setReady(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, now metav1.Time) {
	next := *work
	next.Status = *status
	s := workstate.Of(&next, nil)
	c := ready(&next, s)
	c.LastTransitionTime = now
	status.ObservedGeneration = work.Generation
	if of := meta.FindStatusCondition(status.Conditions, workv1.WorkReady); of != nil && !workv1.IsOfHub(of) {
		status.ObservedGeneration = of.ObservedGeneration
	} else {
		meta.SetStatusCondition(&status.Conditions, c)
	}
	if of := meta.FindStatusCondition(status.Conditions, workv1.WorkStalled); of != nil && !workv1.IsOfHub(of) {
		return
	}
	if c.Type, c.Status = workv1.WorkStalled, metav1.ConditionTrue; s.Stalled() {
		meta.SetStatusCondition(&status.Conditions, c)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, c.Type)
	}
}

// ready returns the condition Ready of a work in this state.
func ready(work *workv1.ManifestWork, s workstate.State) metav1.Condition {
	c := metav1.Condition{Type: workv1.WorkReady, Status: metav1.ConditionFalse, Reason: workv1.ReasonNotReported, Message: condition.Shorten(s.Why(), maxEvent), ObservedGeneration: work.Generation}
	switch workstate.Reached(work) {
	case workstate.PhaseReady:
		c.Status, c.Reason = metav1.ConditionTrue, workv1.ReasonObjectsReady
	case workstate.PhaseApplied:
		c.Status, c.Reason = metav1.ConditionUnknown, workv1.ReasonReadinessNotWatched
	case workstate.PhaseDeleting:
		c.Reason = workv1.ReasonBeingDeleted
	}
	if s.Blocker != nil {
		c.Reason = string(s.Blocker.Cause)
	}
	return c
}
