package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/security/audit"
)

// lastRemoval is the last attempt to remove an object. Events about the object, or about others of
// the work, do not bring the next one forward.
type lastRemoval struct {
	backoff
	orphan  bool                 // it is to stay
	unseen  bool                 // no watch shows it, although it exists: it has lost the agent's label
	outcome apply.RemovalOutcome // Err is nil if the object waits for its finalizers, or for others
}

// waits returns how long to wait before the next attempt, given the object as it is now; 0 or less:
// no longer. It does not wait if the attempt costs no request, because the object is being deleted,
// or if the object seems to be gone.
func (r *lastRemoval) waits(live object.Live, now time.Time) time.Duration {
	if live.State == object.Absent && !r.unseen || live.State == object.Present && live.Object.GetDeletionTimestamp() != nil {
		return 0
	}
	return r.wait(now)
}

// removals are the results of removing several objects in one reconcile, in their order.
type removals struct {
	outcomes []apply.RemovalOutcome
	// waiting is set for objects that were not tried. They have the outcome of their last attempt.
	waiting []bool
	// after is how long to wait before the next attempt for those that wait; 0: none does.
	after time.Duration
}

// newRemovals returns the removals of n objects none of which was tried.
func newRemovals(n int) removals {
	return removals{outcomes: make([]apply.RemovalOutcome, n), waiting: make([]bool, n)}
}

// removeObjects removes objects of amw, except those whose removal was refused and that wait for their
// next attempt, and those that wait for others by their waves. It notes in h what became of them, and when to try again, and logs it;
// base is the record of their work. spec decides what is orphaned, and may be nil.
func (r *Reconciler) removeObjects(ctx context.Context, logger *slog.Logger, base audit.Record, h *history, resources []applied.Resource, spec *workv1.ManifestWorkSpec, amw *workv1.AppliedManifestWork) removals {
	now := time.Now()
	all, first := newRemovals(len(resources)), make([]bool, len(resources))
	entries := make([]plan.Removal, len(resources))
	for i, res := range resources {
		entries[i] = plan.Removal{Ref: res.Ref, Later: true}
		if before := h.lastRemovals[res.Ref]; before != nil {
			if wait := before.waits(r.Objects.Get(res.Ref), now); wait > 0 {
				all.outcomes[i], all.waiting[i] = before.outcome, true
				all.after = sooner(all.after, wait)
				entries[i].Orphan = before.orphan
				continue
			}
		}
		entry, err := r.removalOf(ctx, res, spec)
		if err != nil {
			all.outcomes[i] = apply.RemovalOutcome{Step: plan.LookUp, Err: err}
			first[i] = h.noteRemoval(res.Ref, all.outcomes[i], time.Now())
			continue
		}
		entries[i] = entry
	}
	r.restrictRemovals(ctx, entries, spec)
	r.releaseRefused(entries)
	for i, outcome := range r.Applier.Remove(ctx, entries, applied.OrderOf(amw).Spec != "", amw.UID) {
		if !entries[i].Later {
			all.outcomes[i] = outcome
			first[i] = h.noteRemoval(resources[i].Ref, outcome, time.Now())
			h.lastRemovals[resources[i].Ref].orphan = entries[i].Orphan
		}
	}
	for i, res := range resources {
		outcome := &all.outcomes[i]
		if live := r.Objects.Get(res.Ref); !outcome.Gone && live.State != object.Present {
			all.after = sooner(all.after, r.SyncInterval) // no watch tells when it is gone
			h.lastRemovals[res.Ref].unseen = live.State == object.Absent
		}
		if all.waiting[i] {
			continue
		}
		r.auditRemoved(base, res.Ref, outcome)
		switch {
		case outcome.Gone:
			logger.Info("removed an object", "object", res.Ref, "how", outcome.Step)
		case outcome.Err != nil:
			logger.Debug("removing an object failed", "object", res.Ref, "error", outcome.Err)
		case first[i] && outcome.Step != plan.Hold:
			logger.Info("an object waits for its finalizers", "object", res.Ref)
		}
	}
	return all
}

// err joins the errors of the objects that were tried.
func (r *removals) err() error {
	var errs []error
	for i, outcome := range r.outcomes {
		if !r.waiting[i] {
			errs = append(errs, outcome.Err)
		}
	}
	return errors.Join(errs...)
}

// pending reports whether an object is not gone yet.
func (r *removals) pending() bool {
	return slices.ContainsFunc(r.outcomes, func(o apply.RemovalOutcome) bool { return !o.Gone })
}

// noteRemoval keeps an outcome. It reports whether the object was not
// being removed before, or had an error and has none now. One that is held is not being removed.
func (h *history) noteRemoval(ref object.Ref, outcome apply.RemovalOutcome, now time.Time) (first bool) {
	before := h.lastRemovals[ref]
	first = before == nil || before.outcome.Gone || before.outcome.Step == plan.Hold || before.outcome.Err != nil && outcome.Err == nil
	next := &lastRemoval{outcome: outcome}
	if outcome.Err != nil {
		next.backoff = backoff{}.failed(now)
		if before != nil {
			next.backoff = before.failed(now)
		}
	}
	if h.lastRemovals == nil {
		h.lastRemovals = map[object.Ref]*lastRemoval{}
	}
	h.lastRemovals[ref] = next
	return first
}

// removing reports whether an object that is to be removed is not known to be gone.
func (h *history) removing() bool {
	for _, r := range h.lastRemovals {
		if !r.outcome.Gone {
			return true
		}
	}
	return false
}

// sooner returns the shorter of two times to wait, of which 0 stands for none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
