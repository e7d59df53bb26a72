package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/audit"
)

// remove removes a deleted work from the cluster. It deletes the AppliedManifestWork, reports Deleting, removes the objects that
// it names, and takes its finalizer off. When nothing is left it reports Deleted, the last status of the work. An object with a
// finalizer of its own keeps the AppliedManifestWork, the work, and the objects of lower waves. Deleting is not reported before:
// the source does not send the last spec again then, and an agent that starts again has to find in the cluster what stays.
func (r *Reconciler) remove(ctx context.Context, s subject) (time.Duration, error) {
	r.Table.await(s.entry, nil)
	r.Table.depend(s.entry, nil)
	r.Table.setStanding(s.entry, standing{})
	account, _ := executor.AccountOf(s.work.Spec.Executor)
	r.watch(s.entry, interest{objects: s.entry.interest.objects, account: account})
	if amw, exists := r.Applied.Get(s.entry.name); exists {
		if amw.DeletionTimestamp == nil {
			s.entry.history.lastRemovalsOf = "" // it may be restored, with its objects
		}
		deleting, err := r.delete(ctx, s, amw)
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		recheck := r.reportRemoving(ctx, s, amw)
		if deleting != nil {
			after, done, err := r.removeResources(ctx, s.logger, s.entry, deleting, &s.work.Spec)
			recheck = sooner(recheck, r.reportRemoving(ctx, s, amw))
			if err != nil || !done {
				return sooner(after, recheck), err
			}
		}
		if _, exists := r.Applied.Get(s.entry.name); exists {
			return recheck, nil // until somebody else's finalizer is off, which the watch reports
		}
	}
	r.forget(s.entry)
	r.reportDeleted(s.work)
	s.logger.Info("removed the work from the cluster", "generation", s.work.Generation)
	return 0, nil
}

// delete begins the deletion of amw, after it has noted there which objects stay: an agent that starts again may not know the spec.
func (r *Reconciler) delete(ctx context.Context, s subject, amw *workv1.AppliedManifestWork) (deleting *workv1.AppliedManifestWork, err error) {
	if amw.DeletionTimestamp == nil && len(s.work.Spec.Workload.Manifests) > 0 {
		resources, _ := applied.Resources(amw) // removeResources logs the error
		var kept []object.Ref
		for _, res := range resources {
			if removal, err := r.removalOf(ctx, res, &s.work.Spec); removal.Orphan || err != nil { // which its removal reports
				kept = append(kept, res.Ref)
			}
		}
		noted, err := r.Applied.SetKept(ctx, amw, kept)
		switch {
		case apierrors.IsInvalid(err):
			s.logger.Warn("which objects stay cannot be noted; an agent without the spec would remove them", "appliedManifestWork", amw.Name, "error", err)
		case err != nil:
			return nil, err
		default:
			amw = noted
		}
	}
	return r.Applied.Delete(ctx, amw)
}

// removeResources removes what an AppliedManifestWork that is being deleted names, and takes its
// finalizer off once nothing is left. It reports whether that is so, and otherwise after how long to
// call it again, 0 for when something changes. spec is the work's, and decides what is orphaned; nil
// if it is not known.
func (r *Reconciler) removeResources(ctx context.Context, logger *slog.Logger, e *entry, amw *workv1.AppliedManifestWork, spec *workv1.ManifestWorkSpec) (after time.Duration, done bool, err error) {
	resources, err := applied.Resources(amw)
	if err != nil {
		logger.Warn(intentUnreadable, "appliedManifestWork", amw.Name, "error", err)
	}
	if e.history.lastRemovalsOf != amw.UID { // a spec that was not applied to the end may have made them again
		e.history.lastRemovals, e.history.lastRemovalsOf = nil, amw.UID
	}
	r.noteReturned(&e.history, amw.UID)
	resources = e.history.left(resources)
	if option := applied.DeleteOption(amw); option != nil && (spec == nil || len(spec.Workload.Manifests) == 0) {
		spec = &workv1.ManifestWorkSpec{DeleteOption: option}
	}
	removals := r.removeObjects(ctx, logger, audit.Record{
		Source: r.naming.source(amw), Cluster: r.Cluster, Work: amw.Spec.ManifestWorkName, UID: types.UID(amw.Annotations[applied.UIDAnnotation]),
	}, &e.history, resources, spec, amw)
	var pending []applied.Resource
	for i, outcome := range removals.outcomes {
		if !outcome.Gone {
			pending = append(pending, r.identified(resources[i]))
		}
	}
	if len(pending) == 0 {
		return 0, true, r.Applied.RemoveFinalizer(ctx, amw)
	}
	next := e.interest // what is gone stays followed: it is reported until all is
	followed := sets.New(next.objects...)
	next.objects = slices.Concat(next.objects, slices.DeleteFunc(refsOf(pending), followed.Has))
	r.watch(e, next)
	if _, err := r.Applied.UpdateStatus(ctx, amw, applied.Status{Resources: pending, Transitions: amw.Status.Transitions}); err != nil {
		return 0, false, err
	}
	after = sooner(removals.after, r.pollInterval(refsOf(pending)))
	if err := removals.err(); err != nil {
		return after, false, fmt.Errorf("remove %d of %d objects: %w", len(pending), len(resources), err)
	}
	return after, false, nil
}

// noteReturned forgets of an object that it is gone if a watch shows it with a reference to the owner: a copy of it may have been
// put back, such as from a backup.
func (r *Reconciler) noteReturned(h *history, owner types.UID) {
	maps.DeleteFunc(h.lastRemovals, func(ref object.Ref, last *lastRemoval) bool {
		live := r.Objects.Get(ref)
		return last.outcome.Gone && live.State == object.Present && ownership.Has(live.Object, owner)
	})
}

// pollInterval returns after how long to read refs again, 0 if all of them are watched.
func (r *Reconciler) pollInterval(refs []object.Ref) time.Duration {
	for _, ref := range refs {
		if !r.Objects.Watched(ref.GroupVersionResource) {
			return r.SyncInterval
		}
	}
	return 0
}
