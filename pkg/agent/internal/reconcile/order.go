package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/order"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// ordering is the order in which the manifests of a spec are applied, and how far it has come. Nil stands for no order.
type ordering struct {
	order.Order
	spec    string    // digest of the spec
	run     int       // see [applied.Order]
	first   int       // stages that are open at the start
	opened  int       // stages that are open
	unready []*string // of each manifest: why it is not ready, empty if it is; nil: not looked at yet
}

// specDigest holds the digest of the spec that was reconciled last.
type specDigest struct {
	of   *inbox.Entry
	text string
}

// get returns the digest of a spec. That of a sealed one is not made from its content: it is told in clear.
func (d *specDigest) get(work *inbox.Entry) string {
	if d.of != work {
		*d = specDigest{of: work, text: fmt.Sprintf("%s-%d", work.UID, work.Generation)}
		if !work.Sealed {
			hash, _ := wire.ContentHash(wire.NewBundle(&work.Spec)) // it was decoded from JSON
			d.text = hash[:16]
		}
	}
	return d.text
}

// setOrder sets the order of the manifests of rec.
func (rec *reconciliation) setOrder() {
	items := make([]order.Item, len(rec.manifests))
	for i := range rec.manifests {
		items[i] = order.Item{Hook: rec.manifests[i].Hook, Wave: rec.manifests[i].Wave}
	}
	applyAt, err := workv1.ApplyAtOf(&rec.work.Meta)
	gated := len(rec.dependsOn) > 0 || applyAt != nil || err != nil
	o := order.Of(items, gated)
	if o.IsZero() {
		rec.history().digest = specDigest{}
		return
	}
	come := applied.OrderOf(rec.known)
	rec.order = &ordering{Order: o, spec: rec.history().digest.get(rec.work), run: come.Run, first: order.First, unready: make([]*string, len(items))}
	if come.Spec != "" && come.Spec != rec.order.spec {
		rec.order.run++
	}
	if gated {
		rec.order.first = 0
	}
	rec.order.opened = rec.order.first
	for i := range rec.manifests {
		if m := &rec.manifests[i]; m.Hook != "" {
			m.Run = rec.order.hookSpec()
		}
	}
	rec.order.resume(rec.known)
	if rec.order.opened == 0 {
		rec.stage(applyAt, err, time.Now())
	}
}

// hookSpec returns what is on the Jobs of the spec's hooks. If the spec has been in force before, and another one since, their
// Jobs of then may still be there.
func (o *ordering) hookSpec() string {
	if o.run == 0 {
		return o.spec
	}
	return o.spec + "." + strconv.Itoa(o.run)
}

// start returns what the AppliedManifestWork has of the order of a spec at first.
func (o *ordering) start() applied.Order {
	if o == nil {
		return applied.Order{}
	}
	return applied.Order{Spec: o.spec, Opened: o.first, Run: o.run}
}

// resume continues as far as amw, which may be nil, says that the order of the spec has come.
func (o *ordering) resume(amw *workv1.AppliedManifestWork) {
	if o == nil {
		return
	}
	if come := applied.OrderOf(amw); come.Spec == o.spec {
		o.opened = come.Opened
	}
}

// waits reports whether manifest i is not to be applied yet.
func (o *ordering) waits(i int) bool { return o != nil && o.Waits(i, o.opened) }

// hasRun reports whether manifest i is a hook that has run.
func (o *ordering) hasRun(i int) bool { return o != nil && o.HasRun(i, o.opened) }

// skips reports whether manifest i is not to be applied, because it waits, or because it is a hook that has run.
func (o *ordering) skips(i int) bool { return o.waits(i) || o.hasRun(i) }

// finished reports whether everything has been applied, and ready.
func (o *ordering) finished() bool { return o == nil || o.Finished(o.opened) }

// applyInOrder applies the manifests of all open stages, and opens stages as long as all of these are ready.
func (r *Reconciler) applyInOrder(ctx context.Context, rec *reconciliation, options apply.Options) error {
	rec.outcomes = r.Applier.Apply(ctx, rec.manifests, options)
	rec.leaveWaiting()
	for o := rec.order; o != nil && !rec.repairsWait && ctx.Err() == nil && !rec.budget.Deferred(); {
		if o.opened == 0 && (rec.staged != nil || r.dependencies(rec) != "") ||
			!o.Opens(o.opened, func(i int) bool { return r.unready(ctx, rec, i) == "" }) || rec.budget.Deferred() {
			break
		}
		amw, err := r.Applied.SetOrder(ctx, rec.amw, applied.Order{Spec: o.spec, Opened: o.opened + 1, Run: o.run})
		if err != nil {
			return err
		}
		rec.amw = amw
		before := o.opened
		if o.opened++; o.finished() {
			break
		}
		opens := func(i int) bool { return o.Waits(i, before) && !o.waits(i) }
		options.Skip = func(i int) bool { return !opens(i) || rec.skip(i) }
		for i, outcome := range r.Applier.Apply(ctx, rec.manifests, options) {
			if opens(i) {
				rec.outcomes[i] = outcome
			}
		}
		rec.leaveWaiting()
	}
	return nil
}

// leaveWaiting makes no failure of what will end without anybody: the kind of a manifest whose stage is not open may be defined by an
// earlier one, and the Job of a hook's former run is being deleted.
func (rec *reconciliation) leaveWaiting() {
	if rec.order == nil {
		return
	}
	for i := range rec.outcomes {
		outcome := &rec.outcomes[i]
		var unknown *meta.NoKindMatchError
		var former *plan.FormerRunError
		if rec.order.waits(i) && errors.As(outcome.Err, &unknown) || errors.As(outcome.Err, &former) {
			*outcome = apply.Outcome{Action: apply.Left, Live: outcome.Live}
		}
	}
}

// unready returns why manifest i, of an open stage, is not ready, with its object; empty if it is.
func (r *Reconciler) unready(ctx context.Context, rec *reconciliation, i int) string {
	if known := rec.order.unready[i]; known != nil {
		return *known
	}
	text := r.notReady(ctx, rec, i)
	if text != "" {
		text = workstate.ObjectName(rec.manifests[i].Meta) + text
	}
	rec.order.unready[i] = &text
	return text
}

func (r *Reconciler) notReady(ctx context.Context, rec *reconciliation, i int) string {
	m, live := &rec.manifests[i], rec.live(i)
	switch {
	case rec.order.hasRun(i), rec.complete.Of(i):
		return ""
	case rec.applyError(i) != nil, rec.retryWaits[i]:
		return " is not applied"
	case rec.withholds(i) != nil:
		return " may not be read"
	case live == nil:
		return " does not exist"
	case m.Hook != "" && live.GetAnnotations()[workv1.HookSpecAnnotationKey] != m.Run:
		return " of the former run is being deleted"
	case m.Ref.GroupResource() == jobs:
		switch state, message := plan.StateOfJob(live); state {
		case plan.JobRunning:
			return " is not complete"
		case plan.JobFailed:
			return " has failed: " + message
		default:
			return ""
		}
	case condition.ReadyOnceCreated(m.Kind().GroupKind()):
		return ""
	case slices.ContainsFunc(m.ConditionRules, func(rule workv1.ConditionRule) bool { return rule.Condition == workv1.ManifestProgressing }):
		return notReadyByRules(r.evaluated(ctx, rec, &rec.observed[i], m, live))
	}
	if message := conditionrules.Unready(live.Object); message != "" {
		return ": " + message
	}
	return ""
}

// notReadyByRules returns what the conditions of an object that has a rule for Progressing say of it.
func notReadyByRules(conditions []metav1.Condition) string {
	progressing, degraded := meta.FindStatusCondition(conditions, workv1.ManifestProgressing), meta.FindStatusCondition(conditions, workv1.ManifestDegraded)
	switch {
	case progressing == nil:
		return ": its rule for Progressing was not evaluated"
	case progressing.Status != metav1.ConditionFalse:
		return ": " + progressing.Message
	case degraded != nil && degraded.Status == metav1.ConditionTrue:
		return ": " + degraded.Message
	}
	return ""
}

// waitings returns what each manifest waits for, nil if there is no order.
func (r *Reconciler) waitings(ctx context.Context, rec *reconciliation) []*condition.Waiting {
	o := rec.order
	if o == nil {
		return nil
	}
	all := make([]*condition.Waiting, len(rec.manifests))
	var wait *condition.Waiting // made once
	for i := range rec.manifests {
		switch {
		case o.waits(i):
			if wait == nil {
				wait = r.nextWaiting(ctx, rec)
			}
			all[i] = wait
		case rec.manifests[i].Hook != "" && !o.hasRun(i):
			all[i] = hookWaiting(&rec.manifests[i], rec, i, r.unready(ctx, rec, i))
		}
	}
	return all
}

// nextWaiting returns what those that are not opened yet wait for.
func (r *Reconciler) nextWaiting(ctx context.Context, rec *reconciliation) *condition.Waiting {
	o := rec.order
	switch {
	case o.opened == 0 && rec.staged != nil:
		return rec.staged
	case o.opened == 0:
		return &condition.Waiting{Reason: workv1.ReasonWaitsForWork, Message: "Waits for " + r.dependencies(rec)}
	}
	of := o.Wait(o.opened, func(i int) string { return r.unready(ctx, rec, i) })
	return &of
}

// hookWaiting returns what to say of a hook that is not known to have run.
func hookWaiting(m *strategy.Manifest, rec *reconciliation, i int, unready string) *condition.Waiting {
	if unready == "" {
		return nil
	}
	if live := rec.live(i); live != nil && live.GetAnnotations()[workv1.HookSpecAnnotationKey] == m.Run {
		if state, message := plan.StateOfJob(live); state == plan.JobFailed {
			return &condition.Waiting{Reason: workv1.ReasonHookFailed,
				Message: "The hook has failed: " + message + ". It runs again with the next spec, or when its Job is deleted"}
		}
	}
	return &condition.Waiting{Reason: workv1.ReasonWaitsForHook, Message: "Waits for a hook: " + unready}
}

// jobs are ready when they are complete, not already when they run.
var jobs = schema.GroupResource{Group: "batch", Resource: "jobs"}
