package workstate

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

var doAgent = map[Cause]string{
	Untrusted: "compare the keys: workctl keys list --key of the hub with --trusted-keys of the agent on {cluster}; " +
		"docs/signing.md says what each reason means",
	Unsealed: "give the hub the agent's newest public sealing key, or the agent its private key: docs/signing.md",
	InvalidSpec: "correct the spec of the work as the message says: kubectl edit manifestwork -n {cluster} {work}. " +
		"The previous spec stays in force until then",
	DependencyCycle:  "take one of the names out of the annotation workwire.dev/depends-on of one of these works (docs/order.md)",
	InvalidDependsOn: "correct or remove the annotation workwire.dev/depends-on of the work: it has names of works of the cluster, separated by commas (docs/order.md)",
	InvalidApplyAt:   "correct or remove the annotation workwire.dev/apply-at of the work (docs/order.md)",
	DeletionHeld:     "read the message: create the work again at its source to keep its objects, or release the deletion with the command in it",
}

// agentBlocker looks at what the agent says about the work as a whole.
func agentBlocker(f *Facts) *Blocker {
	conditions := f.Work.Status.Conditions
	if c := meta.FindStatusCondition(conditions, workv1.WorkSpecUntrusted); c != nil && c.Status == metav1.ConditionTrue {
		return f.agent(Untrusted, c)
	}
	if c := meta.FindStatusCondition(conditions, workv1.WorkDeletionHeld); c != nil && c.Status == metav1.ConditionTrue {
		return f.agent(DeletionHeld, c)
	}
	if c := Current(f.Work, workv1.WorkApplied); c != nil && c.Status == metav1.ConditionFalse {
		switch c.Reason {
		case workv1.ReasonInvalidManifestWork, workv1.ReasonTooManySpecs:
			return f.agent(InvalidSpec, c)
		case workv1.ReasonNoUnsealKey, workv1.ReasonInvalidSeal, workv1.ReasonNotSealed:
			return f.agent(Unsealed, c)
		case workv1.ReasonDependencyCycle, workv1.ReasonInvalidDependsOn, workv1.ReasonInvalidApplyAt:
			return f.agent(Cause(c.Reason), c)
		}
	}
	return nil
}

func (f *Facts) agent(cause Cause, c *metav1.Condition) *Blocker {
	return &Blocker{Cause: cause, Object: f.workObject(), Reason: c.Reason, Message: c.Message, Do: f.fill(doAgent[cause]), Since: &c.LastTransitionTime}
}

// deletionBlocker looks at what a deletion waits for.
func deletionBlocker(f *Facts) *Blocker {
	w := f.Work
	deleting := meta.FindStatusCondition(w.Status.Conditions, workv1.WorkDeleting)
	if deleting == nil || deleting.Status != metav1.ConditionTrue {
		if deleted := meta.FindStatusCondition(w.Status.Conditions, workv1.WorkDeleted); deleted != nil && deleted.Status == metav1.ConditionTrue {
			return f.otherFinalizer()
		}
		if b := refusedBlocker(f); b != nil {
			return b
		}
		return &Blocker{Cause: NotAnswered, Object: f.clusterObject(), Since: w.DeletionTimestamp,
			Message: "The deletion is sent, and the agent has not answered it yet.", Do: f.fill(doDelivery[NotAnswered])}
	}
	says, first := condition.FirstHeld(deleting.Message)
	message := "The work is being deleted: " + says
	if says != "" && first.Name == "" { // of what they wait for the agent may not, or cannot, tell
		return &Blocker{Cause: WaitsForWave, Object: f.workObject(), Reason: deleting.Reason, Since: w.DeletionTimestamp, Message: message, Do: f.fill(doDeletionWaits)}
	}
	named, more := ObjectName(first), 0
	for i := range w.Status.ResourceStatus.Manifests {
		entry := &w.Status.ResourceStatus.Manifests[i]
		switch {
		case ObjectName(entry.ResourceMeta) == named:
			first = entry.ResourceMeta // with its resource
		case !meta.IsStatusConditionTrue(entry.Conditions, workv1.ManifestAvailable):
		case first.Name == "":
			first = entry.ResourceMeta
		case says == "": // or else it says all: others may only wait
			more++
		}
	}
	if first.Name == "" {
		return nil
	}
	if says == "" {
		message = "The work is being deleted, and this object still exists: a finalizer holds it, or its deletion is refused."
	}
	return &Blocker{Cause: Finalizer, Object: ObjectName(first), Reason: deleting.Reason, Since: w.DeletionTimestamp, More: more,
		Message: message,
		Do: "on " + w.Namespace + ": " + kubectl("get", first, "-o jsonpath='{.metadata.deletionTimestamp} {.metadata.finalizers}'") +
			"; whoever owns the finalizer removes it once it has cleaned up",
	}
}

// otherFinalizer tells which finalizer holds a work whose objects are gone.
func (f *Facts) otherFinalizer() *Blocker {
	for _, finalizer := range f.Work.Finalizers {
		if finalizer != workv1.ManifestWorkFinalizer {
			return &Blocker{Cause: Finalizer, Object: f.workObject(), Since: f.Work.DeletionTimestamp,
				Message: "The objects are gone from the cluster. The finalizer " + finalizer + " holds the work on the hub.",
				Do:      "look at the controller that owns the finalizer; it removes it once it has cleaned up"}
		}
	}
	return nil
}
