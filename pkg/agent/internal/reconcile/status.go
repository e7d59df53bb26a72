package reconcile

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/ignore"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/redaction"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// report makes status the newest status of a work. A refused spec shows in it.
func (r *Reconciler) report(work *inbox.Entry, status workv1.ManifestWorkStatus) {
	generation := work.Generation
	if work.Refusal != nil {
		generation = max(generation, work.Refusal.Generation)
		status = condition.InvalidStatus(status, r.lastStatus(work), int64(generation), work.Refusal.Reason, work.Refusal.Message, metav1.Now())
	}
	if work.Hold != nil {
		status = condition.WithDeletionHeld(status, r.lastStatus(work), int64(generation), work.Hold.Reason, r.heldMessage(work), metav1.Now())
	}
	if work.Distrust != "" {
		reason, message := distrustCondition(work.Distrust)
		status = condition.WithSpecUntrusted(status, r.lastStatus(work), int64(generation), reason, message, metav1.Now())
	}
	r.setStatus(work, generation, status, false)
}

// distrustCondition returns reason and message of condition SpecUntrusted.
func distrustCondition(reason string) (string, string) {
	known, ok := map[string]struct{ reason, cause string }{
		string(signing.Unsigned):    {workv1.ReasonUnsigned, "it has no signature"},
		string(signing.UnknownKey):  {workv1.ReasonUnknownKey, "the key of its signature is not trusted"},
		string(signing.WrongSource): {workv1.ReasonWrongSource, "the key of its signature is not trusted for this source"},
	}[reason]
	if !ok {
		known.reason, known.cause = workv1.ReasonInvalidSignature, "its signature is not valid"
	}
	return known.reason, "An event of this work was refused: " + known.cause + ". The work stays as it is. " +
		"If the source signs its events, somebody else has sent or changed this one."
}

// reportNotApplied reports that nothing was applied because of err.
func (r *Reconciler) reportNotApplied(ctx context.Context, rec *reconciliation, err error) {
	err = redaction.WithoutValues(err, false)
	rec.outcomes = make([]apply.Outcome, len(rec.manifests))
	for i := range rec.outcomes {
		rec.outcomes[i] = apply.Outcome{Err: err, Live: rec.observed[i].live.Object}
	}
	r.reportStatus(ctx, rec)
}

// reportStatus reports the status of the work after applying, unless expressions were not evaluated to the end.
func (r *Reconciler) reportStatus(ctx context.Context, rec *reconciliation) (status workv1.ManifestWorkStatus, reported bool) {
	status = r.status(ctx, rec)
	if ctx.Err() != nil || rec.budget.Deferred() {
		return status, false
	}
	r.report(rec.work, status)
	return status, true
}

// reportRemoving reports which objects of a deleted work, of which there is amw, still exist, and what they wait for. It
// returns after how long to do so again, 0 for when something changes.
func (r *Reconciler) reportRemoving(ctx context.Context, s subject, amw *workv1.AppliedManifestWork) (recheck time.Duration) {
	presence := r.removingPresence(ctx, s.work, &recheck)
	var held []condition.Held
	lower := 0
	look := func(ref object.Ref, m workv1.ManifestResourceMeta, dropped bool) condition.Presence {
		found, live := presence(ref)
		if live != nil {
			m.Kind = cmp.Or(m.Kind, live.GetKind())
		}
		last := s.entry.history.lastRemovals[ref] // not told of what the executor may not read
		switch {
		case live != nil && live.GetDeletionTimestamp() != nil && len(live.GetFinalizers()) > 0:
			held = append(held, condition.Held{Meta: m, Dropped: dropped, Finalizers: live.GetFinalizers()})
		case last == nil || live == nil && (found != condition.Unresolved || s.work.Spec.Executor != nil):
		case last.outcome.Err != nil:
			held = append(held, condition.Held{Meta: m, Dropped: dropped, Refused: errorReason(last.outcome.Err)})
		case last.outcome.Step == plan.Hold:
			lower++
		}
		return found
	}
	status := condition.DeletingStatus(r.previousStatus(s, amw), int64(s.work.Generation), func(m workv1.ManifestResourceMeta) condition.Presence {
		if m.Resource == "" {
			return condition.Unresolved
		}
		return look(refOf(m), m, false)
	}, metav1.Now())
	entries := status.ResourceStatus.Manifests
	for _, ref := range unnamed(amw, entries) {
		look(ref, strategy.MetaOf(ref), len(entries) > 0) // without entries, as after a restart, it is not known what the spec has
	}
	condition.AddHeld(&status, held, lower)
	r.setStatus(s.work, s.work.Generation, status, false)
	return recheck
}

// refOf returns the object of a manifest, without a resource if its kind is not known.
func refOf(m workv1.ManifestResourceMeta) object.Ref {
	return object.Ref{
		GroupVersionResource: schema.GroupVersionResource{Group: m.Group, Version: m.Version, Resource: m.Resource}, Namespace: m.Namespace, Name: m.Name,
	}
}

// unnamed returns the objects of amw that are in none of the entries of a status: those that the spec has dropped.
func unnamed(amw *workv1.AppliedManifestWork, entries []workv1.ManifestCondition) []object.Ref {
	resources, _ := applied.Resources(amw) // removeResources logs the error
	named := make([]object.Ref, len(entries))
	for i := range entries {
		named[i] = refOf(entries[i].ResourceMeta)
	}
	return slices.DeleteFunc(refsOf(applied.Dropped(resources, named)), func(ref object.Ref) bool {
		return slices.ContainsFunc(named, func(m object.Ref) bool { // its kind is not known now
			return m.Resource == "" && m.Group == ref.Group && m.Name == ref.Name
		})
	})
}

// reportDeleted reports the last status of a work.
func (r *Reconciler) reportDeleted(work *inbox.Entry) {
	r.setStatus(work, work.Generation, condition.WithDeleted(r.lastStatus(work), string(work.Cluster), metav1.Now()), true)
}

// lastStatus returns the status reported last, an empty one if there is none.
func (r *Reconciler) lastStatus(work *inbox.Entry) workv1.ManifestWorkStatus {
	last, _ := r.Outbox.Last(work.Key)
	return last.Status
}

// setStatus puts a status into the outbox.
func (r *Reconciler) setStatus(work *inbox.Entry, generation wire.Generation, status workv1.ManifestWorkStatus, final bool) {
	r.Outbox.Set(work.Key, outbox.Status{
		Generation: generation, Cluster: work.Cluster, Meta: &work.Meta, Status: status, Trace: work.Trace, Final: final, Received: work.Received, Cause: r.cause(work),
	})
}

// status returns the work's status after applying.
func (r *Reconciler) status(ctx context.Context, rec *reconciliation) workv1.ManifestWorkStatus {
	in := condition.Input{
		Generation: int64(rec.work.Generation), Manifests: make([]condition.Manifest, len(rec.manifests)),
		Warnings: strategy.Warnings(&rec.work.Spec, rec.manifests), Previous: &rec.previous, Now: metav1.Now(),
		Readiness: r.watchesReadiness(rec.work), Blocked: rec.blocked(),
	}
	causes, waitings := causes{reconciler: r, rec: rec}, r.waitings(ctx, rec)
	withFeedback := 0
	for i := range rec.manifests {
		withFeedback += min(len(rec.manifests[i].FeedbackRules), 1)
	}
	for i := range rec.manifests {
		m, live := &rec.manifests[i], rec.live(i)
		c := condition.Manifest{Meta: m.Meta, ApplyError: rec.applyError(i), HasFeedback: len(m.FeedbackRules) > 0}
		var ignoreFields *ignore.Error
		c.IgnoreFields = errors.As(c.ApplyError, &ignoreFields)
		c.Flapping = rec.history().repairs.flapping(m.Ref)
		if waitings != nil {
			c.Waiting, c.HasRun = waitings[i], rec.order.hasRun(i)
			if rec.order.waits(i) && denied(c.ApplyError) {
				c.ApplyError = nil // an earlier wave may give the executor the right
			}
		}
		warnings, known := rec.warnings(i)
		c.Warnings, c.KeepWarnings = warnings, !known
		if rec.outcomes[i].HeldBack && rec.complete.Of(i) {
			c.Warnings, c.KeepWarnings = append(slices.Clip(warnings), condition.HeldBack), false
		}
		c.Presence, c.ReadError = r.presence(rec, i, live)
		if c.Presence == condition.Present && c.HasFeedback {
			c.Values, c.FeedbackError = r.feedback(rec, m, live, withFeedback)
		}
		c.Rules = ruleTypes(m)
		c.Evaluated = causes.readiness(ctx, i, live, r.evaluated(ctx, rec, &rec.observed[i], m, live))
		in.Manifests[i] = c
	}
	rec.history().pods = causes.known
	return condition.WorkStatus(in)
}

// presence returns what is known of the object of manifest i, live, and why it could not be read.
func (r *Reconciler) presence(rec *reconciliation, i int, live *unstructured.Unstructured) (condition.Presence, error) {
	m, outcome := &rec.manifests[i], &rec.outcomes[i]
	if err := rec.withholds(i); err != nil {
		return rec.withheldPresence(err)
	}
	switch {
	case rec.observed[i].err != nil:
		return condition.Unreadable, rec.observed[i].err
	case live != nil:
		return condition.Present, nil
	case m.Ref == object.Ref{} && m.Meta.Resource == "":
		return condition.Unresolved, nil
	case rec.untouched(i), denied(outcome.Err) && rec.observed[i].live.State == object.Absent:
		return condition.Missing, nil
	case outcome.Err == nil, apierrors.IsNotFound(outcome.Err), r.Objects.Get(m.Ref).State == object.Absent, m.Err != nil:
		return condition.Missing, nil
	default:
		return condition.Unreadable, outcome.Err
	}
}
