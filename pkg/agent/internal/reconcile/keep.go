package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// keep reconciles a work that its source does not know, and whose deletion is held. It is applied
// as any other work, if its spec is known, until somebody releases the deletion.
func (r *Reconciler) keep(ctx context.Context, s subject) (time.Duration, error) {
	amw, exists := r.Applied.Get(s.entry.name)
	switch {
	case exists && applied.Released(amw), !exists && !s.work.HasSpec():
		s.logger.Info("deletion released", "reason", s.work.Hold.Reason)
		r.Inbox.Release(s.work.Key)
		return 0, nil
	case s.work.HasSpec():
		return r.apply(ctx, s)
	default:
		previous := r.previousStatus(s, amw)
		status := previous.DeepCopy() // it is that of the outbox
		condition.Explain(status)
		r.report(s.work, *status)
		return 0, r.Applied.SetHeld(ctx, amw, s.work.Hold.Reason)
	}
}

// heldReason returns the reason why the deletion of work is held, or "".
func heldReason(work *inbox.Entry) string {
	if work.Hold == nil {
		return ""
	}
	return work.Hold.Reason
}

// heldMessage returns the message of condition DeletionHeld.
func (r *Reconciler) heldMessage(work *inbox.Entry) string {
	why := fmt.Sprintf("does not know this work, nor more than %d %% of the works that it sent to this cluster", inbox.MaxDisownedPercent)
	if work.Hold.Reason == workv1.ReasonSourceIdentityChanged {
		why = "does not know this work, and is not the source that sent it: its identity has changed"
	}
	return fmt.Sprintf("Source %s %s. The objects stay. To keep them, create the work again at the source, with this name; "+
		"to delete them, run: kubectl annotate appliedmanifestwork %s %s=true",
		work.Source, why, r.naming.name(work.Source, work.Meta.Name), workv1.ReleaseAnnotation)
}
