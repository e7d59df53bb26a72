package works

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// statusPlan is what to do with a received status, in this order.
type statusPlan struct {
	store   bool // write the status
	release bool // remove the hub's finalizer
}

// planStatus plans for a received status of work, which is not the stored one if changed. A deleted work
// that only the hub's finalizer holds gets no further status.
func planStatus(work *workv1.ManifestWork, status *workv1.ManifestWorkStatus, changed bool) statusPlan {
	p := statusPlan{store: changed}
	if work.DeletionTimestamp != nil && meta.IsStatusConditionTrue(status.Conditions, workv1.WorkDeleted) {
		p.release = HasFinalizer(work)
		if p.release && len(work.Finalizers) == 1 {
			p.store = false
		}
	}
	return p
}

// event is an event about a work.
type event struct{ kind, reason, message string }

// eventsFor returns the events about a change of a work's status: its newest spec is held up, or is no
// longer; and manifests fail that did not.
func eventsFor(before, after *workv1.ManifestWorkStatus) []event {
	var events []event
	was, is := meta.FindStatusCondition(before.Conditions, workv1.WorkDelivered), meta.FindStatusCondition(after.Conditions, workv1.WorkDelivered)
	switch {
	case is == nil:
	case is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Reason != is.Reason):
		events = append(events, event{corev1.EventTypeWarning, is.Reason, is.Message})
	case is.Status == metav1.ConditionTrue && was != nil && was.Status == metav1.ConditionFalse:
		events = append(events, event{corev1.EventTypeNormal, is.Reason, is.Message})
	}
	was, is = meta.FindStatusCondition(before.Conditions, workv1.WorkApplied), meta.FindStatusCondition(after.Conditions, workv1.WorkApplied)
	if is != nil && is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status) {
		events = append(events, event{corev1.EventTypeWarning, is.Reason, condition.Shorten(firstError(after, is.Message), maxEvent)})
	}
	return events
}

// firstError returns why the first manifest that failed was not applied, with its name; otherwise
// if none failed.
func firstError(status *workv1.ManifestWorkStatus, otherwise string) string {
	for i := range status.ResourceStatus.Manifests {
		m := &status.ResourceStatus.Manifests[i]
		if c := meta.FindStatusCondition(m.Conditions, workv1.ManifestApplied); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("%s %s: %s", m.ResourceMeta.Kind, m.ResourceMeta.Name, c.Message)
		}
	}
	return otherwise
}

// maxEvent is the maximum length of an event's message in bytes.
const maxEvent = 1024

// unstorable returns the status to write in place of one that the API server refused: the status
// before it, with the condition [workv1.WorkStatusStored].
func unstorable(before *workv1.ManifestWorkStatus, generation int64, refusal error) *workv1.ManifestWorkStatus {
	status := before.DeepCopy()
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:   workv1.WorkStatusStored,
		Status: metav1.ConditionFalse,
		Reason: workv1.ReasonStatusRefused,
		Message: condition.Shorten(fmt.Sprintf("The hub's API refuses the status that the agent reports, so the rest of this status is an older one: %v",
			refusal), condition.MaxMessage),
		ObservedGeneration: generation,
	})
	return status
}
