package works

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate"
)

// setReady sets the condition Ready of status, which is to be stored in work, to the sum of the others, and
// observedGeneration to what it is about.
func setReady(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, now metav1.Time) {
	if c := meta.FindStatusCondition(status.Conditions, workv1.WorkReady); c != nil && !workv1.IsOfHub(c) {
		status.ObservedGeneration = c.ObservedGeneration
		return
	}
	status.ObservedGeneration = work.Generation
	next := *work
	next.Status = *status
	c := ready(&next)
	c.LastTransitionTime = now
	meta.SetStatusCondition(&status.Conditions, c)
}

// ready returns the condition Ready of a work.
func ready(work *workv1.ManifestWork) metav1.Condition {
	s := workstate.Of(work, nil)
	c := metav1.Condition{Type: workv1.WorkReady, Status: metav1.ConditionFalse, Reason: workv1.ReasonNotReported, Message: truncate(s.Why(), maxEvent), ObservedGeneration: work.Generation}
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
