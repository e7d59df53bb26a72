package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
)

// apply makes the cluster hold what the work's spec declares, and reports what the cluster holds.
// It returns after how long to do so again, 0 for when something changes.
func (r *Reconciler) apply(ctx context.Context, s subject) (time.Duration, error) {
	b, wait := r.beginExpressions(s.history(), s.work)
	if wait > 0 {
		return wait, nil
	}
	known, err := r.Applied.Current(ctx, s.entry.name)
	if err != nil {
		r.endExpressions(s.history(), b)
		return 0, err
	}
	r.Table.holdEvents(s.entry)
	rec := r.prepare(ctx, s, known, b)
	var after time.Duration
	if !b.Deferred() {
		after, err = r.applySpec(ctx, rec)
	}
	wait = r.endExpressions(s.history(), b)
	if events := r.Table.takeEvents(s.entry); b.Deferred() {
		return wait, err
	} else if rec.missed(events) {
		r.Table.Enqueue(s.entry.name)
	}
	if err != nil && known != nil && ctx.Err() == nil {
		if _, exists := r.Applied.Get(s.entry.name); !exists {
			// A restore has removed it. Another one must name what was applied before the work can be deleted.
			return r.apply(ctx, s)
		}
	}
	return sooner(after, wait), err
}

// applySpec makes sure that the AppliedManifestWork names what is about to be applied, and applies
// it.
func (r *Reconciler) applySpec(ctx context.Context, rec *reconciliation) (time.Duration, error) {
	work := rec.work
	if rec.complete.Work && rec.known == nil {
		// Its AppliedManifestWork was deleted by hand, and its objects with it. A complete work is
		// not applied again.
		rec.outcomes = make([]apply.Outcome, len(rec.manifests))
		for i := range rec.outcomes {
			rec.outcomes[i].Action = apply.Left
		}
		r.remember(rec)
		r.noteStanding(ctx, rec)
		r.reportStatus(ctx, rec)
		return rec.requeueAfter, nil
	}
	intended := slices.Concat(rec.tracked, rec.undecided)
	if rec.complete.Work {
		intended = nil
	}
	amw, err := r.Applied.Ensure(ctx, rec.known, r.naming.hubHash(work.Source), applied.Work{
		Name: work.Meta.Name, UID: work.UID, Source: work.Source, Labels: work.Meta.Labels,
		SourceIdentity: work.SourceIdentity, HeldReason: heldReason(work), Order: rec.order.start(), Kept: rec.kept(),
	}, intended)
	if err != nil {
		if !apierrors.IsConflict(err) { // else it is tried again at once
			r.reportNotApplied(ctx, rec, err)
		}
		return 0, err
	}
	if amw.DeletionTimestamp != nil {
		// Somebody deleted the AppliedManifestWork. What it names goes with it, and is applied
		// again under a new one.
		after, _, err := r.removeResources(ctx, rec.logger, rec.entry, amw, &work.Spec)
		if err != nil {
			return after, err
		}
		h := rec.history()
		h.spec, h.applied, h.repairs = nil, nil, repairs{}
		return sooner(after, r.SyncInterval), nil
	}
	rec.amw = amw
	rec.order.resume(amw)
	err = r.applyManifests(ctx, rec)
	rec.requeueWithin(r.pollInterval(rec.followed()))
	return rec.requeueAfter, err
}

// applyManifests applies the manifests, removes the dropped objects, and records and reports the
// result.
func (r *Reconciler) applyManifests(ctx context.Context, rec *reconciliation) error {
	orderErr := r.applyInOrder(ctx, rec, apply.Options{
		Owner:           ownership.Reference(rec.amw.Name, rec.amw.UID),
		Previous:        rec.last.manifest,
		FieldsDigest:    rec.fieldsDigest,
		Live:            rec.watched,
		Skip:            rec.skip,
		Authorize:       r.permits(rec),
		DetectConflicts: rec.history().repairs.contested() && !rec.changed,
	})
	if ctx.Err() != nil || rec.budget.Deferred() {
		return ctx.Err()
	}
	amw := rec.amw
	r.noteRefusals(rec)
	rec.repeatFailed()
	r.readDenied(ctx, rec, time.Now())
	rec.removals = newRemovals(len(rec.dropped))
	h := rec.history()
	if rec.changed || h.lastRemovalsOf != "" {
		h.lastRemovals, h.lastRemovalsOf = nil, ""
	}
	if !rec.complete.Work && rec.refusal == nil && rec.order.finished() { // a spec that is refused drops nothing
		rec.removals = r.removeObjects(ctx, rec.logger, auditOf(rec.work), h, rec.dropped, &rec.work.Spec, amw)
		rec.requeueWithin(rec.removals.after)
	}
	r.remember(rec)
	r.noteStanding(ctx, rec)
	status, reported := r.reportStatus(ctx, rec)
	if !reported {
		return ctx.Err()
	}
	transitions, err := applied.EncodeTransitions(&status, amw.Status.Transitions)
	if err != nil {
		return err
	}
	if amw.Status.EvictionStartTime != nil {
		if amw, err = r.Applied.SetEviction(ctx, amw, nil); err != nil {
			return err
		}
	}
	rec.amw = amw
	if !r.putOffRecord(rec, &status) {
		if amw, err = r.Applied.UpdateStatus(ctx, amw, applied.Status{Resources: r.appliedResources(rec, amw), Transitions: transitions}); err == nil {
			rec.amw = amw
		}
	}
	return errors.Join(err, orderErr, rec.manifestErrors(), rec.removals.err())
}
