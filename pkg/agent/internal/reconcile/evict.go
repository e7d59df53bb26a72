package reconcile

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// evict reconciles a name that no work has. An AppliedManifestWork of the agent with that name
// stays for a grace period, since its source may be about to send the work, and is then deleted
// with its objects. It returns after how long to do so again, 0 for when something changes.
func (r *Reconciler) evict(ctx context.Context, logger *slog.Logger, e *entry) (time.Duration, error) {
	amw, exists := r.Applied.Get(e.name)
	if !exists || !r.Owner.Owns(amw) {
		r.forget(e)
		return 0, nil
	}
	e.history.repairs = repairs{} // nothing is restored
	if amw.DeletionTimestamp != nil {
		return r.finishEviction(ctx, logger, e, amw)
	}
	source := r.naming.source(amw)
	if amw.Status.EvictionStartTime == nil && r.naming.name(source, amw.Spec.ManifestWorkName) == amw.Name && r.recoverWork(amw) {
		// It came back: the API server, or this object, was restored from a backup.
		logger.Warn("an AppliedManifestWork has come back without its work; asking its source", "source", source)
		r.Sources.Ask(source)
		r.Table.Enqueue(e.name)
		return 0, nil
	}
	marks := e.history.marks
	r.forget(e)
	e.history.marks = marks
	answered := r.Sources.Answered(source)
	decision, wait := applied.DecideEviction(amw, applied.EvictionRule{
		AgentID: r.Owner.AgentID, Grace: r.EvictionGrace, Answered: answered, Now: time.Now(), Clock: r.clock,
	})
	var err error
	switch decision {
	case applied.Mark:
		now := metav1.Now()
		if wait := marks.wait(now.Time); wait > 0 {
			return wait, nil // somebody else takes the mark away again and again
		}
		e.history.marks = marks.failed(now.Time)
		if marks.failures == 0 {
			logger.Warn("an AppliedManifestWork has no work; evicting it after the grace period", "grace", r.EvictionGrace)
		}
		_, err = r.Applied.SetEviction(ctx, amw, &now)
	case applied.Clear:
		_, err = r.Applied.SetEviction(ctx, amw, nil)
	case applied.Evict:
		logger.Warn("evicting an AppliedManifestWork and its objects: the grace period is over", "since", amw.Status.EvictionStartTime)
		deleting, err := r.Applied.Delete(ctx, amw)
		if apierrors.IsNotFound(err) || err == nil && deleting == nil {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		return r.finishEviction(ctx, logger, e, deleting)
	case applied.None: // as long as the source has not answered
		if source != "" && !answered {
			wait = r.Sources.AskAgain(source)
		}
	}
	return wait, err
}

// finishEviction removes what an AppliedManifestWork without a work names.
func (r *Reconciler) finishEviction(ctx context.Context, logger *slog.Logger, e *entry, amw *workv1.AppliedManifestWork) (time.Duration, error) {
	after, done, err := r.removeResources(ctx, logger, e, amw, nil)
	if err != nil || !done {
		return after, err
	}
	r.forget(e)
	return 0, nil
}
