package reconcile

import (
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// remember keeps the results of a reconcile for the next one, and reports them in logs and metrics.
func (r *Reconciler) remember(rec *reconciliation) {
	h := rec.history()
	if rec.changed {
		h.reset()
	}
	r.noteOutcomes(rec, time.Now())
	rec.rememberWarnings()
	r.notifyOthers(rec)
	r.rememberRepairs(rec, time.Now())
	h.spec, h.applied = rec.work, rec.appliedSpecs()
	rec.countNow()
}

// wrote reports whether the object of manifest i was created or updated.
func (rec *reconciliation) wrote(i int) bool {
	outcome := &rec.outcomes[i]
	return outcome.Err == nil && (outcome.Action == apply.Created || outcome.Action == apply.Updated)
}

// repaired reports whether the object of manifest i was written because it differed, although its manifest
// did not change.
func (rec *reconciliation) repaired(i int) bool {
	return rec.wrote(i) && !rec.outcomes[i].Blind && !rec.changed && rec.last.spec(rec.manifests[i].Ref) == rec.work
}

// noteOutcomes logs and counts what happened to each manifest, and keeps which ones failed.
func (r *Reconciler) noteOutcomes(rec *reconciliation, now time.Time) {
	for i := range rec.outcomes {
		ref, outcome := rec.manifests[i].Ref, &rec.outcomes[i]
		if rec.retryWaits[i] {
			continue
		}
		r.metrics.manifests.WithLabelValues(outcome.Action.String()).Inc()
		r.auditApplied(rec, i)
		switch {
		case outcome.Err != nil:
			rec.noteFailure(i, now)
		case !rec.repairsWait:
			delete(rec.history().failures, i)
		}
		if rec.wrote(i) {
			rec.logger.Info("applied a manifest", "object", ref, "action", outcome.Action, "repair", rec.repaired(i), "differences", outcome.Differences)
		}
	}
	if h := rec.history(); len(h.failures) == 0 {
		h.failures = nil
	}
}

// notifyOthers tells the other works that declare an object of its write: the watch does not report
// the agent's own writes.
func (r *Reconciler) notifyOthers(rec *reconciliation) {
	for i := range rec.outcomes {
		if !rec.wrote(i) {
			continue
		}
		ref := rec.manifests[i].Ref
		for _, other := range r.Objects.Others(ref, rec.entry.name) {
			r.Table.ObjectChanged(other, ref, rec.outcomes[i].Live.GetResourceVersion())
		}
	}
}

// appliedSpecs maps each object to the work whose spec it was last applied from; nil if that is
// this one for all of them.
func (rec *reconciliation) appliedSpecs() map[object.Ref]*inbox.Entry {
	specs, all := make(map[object.Ref]*inbox.Entry, len(rec.manifests)), true
	for i := range rec.manifests {
		ref, outcome := rec.manifests[i].Ref, &rec.outcomes[i]
		if outcome.Err == nil && outcome.Action != apply.Left {
			specs[ref] = rec.work
			continue
		}
		before := rec.last.spec(ref)
		if before != nil && specs[ref] == nil {
			specs[ref] = before
		}
		all = all && before == rec.work
	}
	if all {
		return nil
	}
	return specs
}

// rememberRepairs counts the repairs of this reconcile, records an event for each, and keeps which
// objects flap.
func (r *Reconciler) rememberRepairs(rec *reconciliation, now time.Time) {
	repairs, repaired := &rec.history().repairs, false
	for i := range rec.outcomes {
		if !rec.repaired(i) {
			continue
		}
		repaired = true
		ref, outcome := rec.manifests[i].Ref, &rec.outcomes[i]
		flapping := repairs.noteObject(ref, now, func() string {
			return flappingMessage(rec.work.Meta.Name, r.otherWorks(rec, ref), outcome)
		})
		r.metrics.repairs.WithLabelValues(outcome.Action.String()).Inc()
		r.recordRepair(rec, i, flapping)
	}
	if repaired {
		repairs.note(now)
	}
	rec.requeueWithin(repairs.expire(now))
}

// otherWorks names the other works that declare an object; those of other sources without their names.
func (r *Reconciler) otherWorks(rec *reconciliation, ref object.Ref) []string {
	var works []string
	for _, name := range r.Objects.Others(ref, rec.entry.name) {
		for _, key := range r.Table.keys(name) {
			if other, held := r.Inbox.Get(key); held && key.Source == rec.work.Source {
				works = append(works, "ManifestWork "+strconv.Quote(other.Meta.Name))
			} else if held {
				works = append(works, "a work of another source")
			}
		}
	}
	slices.Sort(works)
	return slices.Compact(works)
}

// recordRepair records the event of the repair of manifest i, unless nothing of its object may be
// told, or too many repairs were recorded.
func (r *Reconciler) recordRepair(rec *reconciliation, i int, flapping string) {
	if r.Events == nil || rec.withholds(i) != nil || !r.eventLimit.TryAccept() {
		return
	}
	outcome := &rec.outcomes[i]
	kind, reason, message := corev1.EventTypeNormal, workv1.EventDriftRepaired, driftMessage(rec.work.Meta.Name, outcome)
	if flapping != "" {
		kind, reason, message = corev1.EventTypeWarning, workv1.ReasonFlapping, flapping
	}
	r.Events.Event(&corev1.ObjectReference{
		APIVersion: outcome.Live.GetAPIVersion(), Kind: outcome.Live.GetKind(),
		Namespace: outcome.Live.GetNamespace(), Name: outcome.Live.GetName(), UID: outcome.Live.GetUID(),
	}, kind, reason, condition.Cut(message, maxEvent))
}
