package reconcile

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// prepare parses the work, sets what is watched for it, and observes its objects. known is its
// AppliedManifestWork, nil if it has none. Expressions spend from b.
func (r *Reconciler) prepare(ctx context.Context, s subject, known *workv1.AppliedManifestWork, b *budget.Budget) *reconciliation {
	rec := &reconciliation{
		subject: s, known: known, budget: b,
		changed: s.entry.history.spec != s.work, previous: r.previousStatus(s, known),
	}
	if wait := time.Until(s.entry.history.repairs.notBefore); !rec.changed && wait > 0 {
		rec.repairsWait = true
		rec.requeueWithin(wait)
	}
	if rec.manifests = r.parse(ctx, s.work, b); b.Deferred() {
		return rec
	}
	r.followDependencies(rec)
	rec.setOrder()
	rec.last = newLastApplied(s.history(), s.work, rec.manifests, func(spec *inbox.Entry) []strategy.Manifest { return r.parse(ctx, spec, b.Again()) })
	rec.account, rec.accountErr = executor.AccountOf(s.work.Spec.Executor)
	rec.tracked = manifestRefs(rec.manifests)
	if known != nil {
		r.noteReturned(s.history(), known.UID)
		rec.dropped, rec.undecided = rec.droppedResources()
		rec.tracked = append(rec.tracked, refsOf(rec.dropped)...)
	}
	r.Table.await(s.entry, unknownKinds(rec.manifests))
	r.followAccount(s.entry, rec.account)
	r.consultPolicy(rec)
	r.authorizeReads(ctx, rec)
	r.watch(s.entry, interest{objects: rec.followed(), named: rec.namedRefs(), account: rec.account})
	wasComplete := condition.WasComplete(&rec.previous)
	rec.observed = r.observe(ctx, rec, wasComplete)
	rec.complete = rec.completed(wasComplete)
	rec.complete.Work = rec.complete.Work && (known == nil || rec.order.finished())
	if r.Table.testAndClear(&s.entry.retry) {
		for _, failed := range s.entry.history.failures {
			failed.backoff = backoff{}
		}
	}
	rec.awaitFailed(time.Now())
	return rec
}

// previousStatus returns the last status reported for the work or, after a restart, the one of its
// AppliedManifestWork.
func (r *Reconciler) previousStatus(s subject, known *workv1.AppliedManifestWork) workv1.ManifestWorkStatus {
	if last, ok := r.Outbox.Last(s.work.Key); ok {
		return last.Status
	}
	if !isRecordOf(known, s.work) {
		return workv1.ManifestWorkStatus{}
	}
	status, err := applied.DecodeTransitions(known.Status.Transitions)
	if err != nil {
		s.logger.Warn("decoding transitions failed; transition times and completion from before the restart are lost",
			"appliedManifestWork", known.Name, "error", err)
		return workv1.ManifestWorkStatus{}
	}
	return *status
}

// parse returns the work's manifests, whose expressions spend from b.
func (r *Reconciler) parse(ctx context.Context, work *inbox.Entry, b *budget.Budget) []strategy.Manifest {
	manifests := strategy.Parse(b, &work.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
		return r.RESTMapper.RESTMapping(ctx, kind)
	})
	readiness := r.watchesReadiness(work)
	for i := range manifests {
		m := &manifests[i]
		if m.Err == nil {
			m.Err = conditionrules.Validate(m.ConditionRules)
		}
		if readiness {
			m.ConditionRules = conditionrules.WithReadiness(m.ConditionRules, m.Kind())
		}
	}
	return manifests
}

// watchesReadiness reports whether it is reported if the objects of a work are ready.
func (r *Reconciler) watchesReadiness(work *inbox.Entry) bool {
	return !r.WithoutReadiness && workv1.ReportsReadiness(&work.Meta)
}

// manifestRefs returns the objects of manifests, each once.
func manifestRefs(manifests []strategy.Manifest) []object.Ref {
	refs := make([]object.Ref, 0, len(manifests))
	known := make(map[object.Ref]struct{}, len(manifests))
	for i := range manifests {
		ref := manifests[i].Ref
		if _, twice := known[ref]; ref != (object.Ref{}) && !twice {
			known[ref] = struct{}{}
			refs = append(refs, ref)
		}
	}
	return refs
}

// namedRefs returns the objects that are to be watched by name.
func (rec *reconciliation) namedRefs() []object.Ref {
	var refs []object.Ref
	for i := range rec.manifests {
		if m := &rec.manifests[i]; readOnly(m) && rec.withholds(i) == nil && m.FeedbackScrapeType == workv1.FeedbackScrapeTypeWatch {
			refs = append(refs, m.Ref)
		}
	}
	return refs
}

// unknownKinds returns the kinds of manifests that the cluster does not serve.
func unknownKinds(manifests []strategy.Manifest) []schema.GroupKind {
	var unknown []schema.GroupKind
	for i := range manifests {
		if err, ok := errors.AsType[*meta.NoKindMatchError](manifests[i].Err); ok {
			unknown = append(unknown, err.GroupKind)
		}
	}
	return unknown
}

// droppedResources returns the objects that the AppliedManifestWork names and the manifests do not.
// Those that a manifest of an unresolved kind may be about are undecided: a failed lookup is no
// reason to delete, nor to forget.
func (rec *reconciliation) droppedResources() (dropped []applied.Resource, undecided []object.Ref) {
	resources, err := applied.Resources(rec.known)
	if err != nil {
		rec.logger.Warn(intentUnreadable, "appliedManifestWork", rec.known.Name, "error", err)
	}
	for _, res := range rec.history().left(applied.Dropped(resources, rec.tracked)) {
		if slices.ContainsFunc(rec.manifests, func(m strategy.Manifest) bool { return mayBe(&m, res) }) {
			undecided = append(undecided, res.Ref)
		} else {
			dropped = append(dropped, res)
		}
	}
	return dropped, undecided
}

// intentUnreadable is logged when an AppliedManifestWork does not tell which objects were about to
// be applied.
const intentUnreadable = "reading the intended objects of an AppliedManifestWork failed"

// observe returns the state of each manifest's object: from memory if it is watched, else from the
// API server if applying does not read it either. Applying does not read the objects that the agent
// does not write, because they are ReadOnly or because it skips them. Nothing is known of an object
// that is withheld.
func (r *Reconciler) observe(ctx context.Context, rec *reconciliation, wasComplete func(workv1.ManifestResourceMeta) bool) []observed {
	all := make([]observed, len(rec.manifests))
	for i := range rec.manifests {
		m, o := &rec.manifests[i], &all[i]
		if m.Ref == (object.Ref{}) || rec.withholds(i) != nil {
			continue
		}
		o.live = r.Objects.Get(m.Ref)
		o.watched = o.live.State == object.Present
		if !o.watched && readOnly(m) {
			o.live = r.Named.Get(m.Ref) // the agent's watches select its label
		}
		if !o.watched && o.live.State == object.Unknown && (readOnly(m) || rec.repairsWait || wasComplete(m.Meta)) {
			o.live, o.err = r.read(ctx, rec, m.Ref)
			rec.requeueWithin(r.SyncInterval)
		}
		if len(m.ConditionRules) > 0 && o.live.Object != nil {
			before := rec.budget.Left()
			o.conditions = r.evaluate(ctx, rec, m, o.live.Object)
			o.steps = before - rec.budget.Left()
		}
	}
	return all
}

// read reads an object from the API server.
func (r *Reconciler) read(ctx context.Context, rec *reconciliation, ref object.Ref) (object.Live, error) {
	client, err := r.reader(ctx, rec)
	if err != nil {
		return object.Live{}, err
	}
	live, err := object.Found(client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{}))
	if live.Object != nil {
		live.Object.SetManagedFields(nil)
	}
	if rec.account != nil {
		err = r.Executors.Refused(*rec.account, ref, err)
	}
	return live, err
}

// observed is the object of a manifest before it is applied, and what the manifest's condition
// rules say about it.
type observed struct {
	live    object.Live
	watched bool  // live comes from a watch of the agent's own objects
	err     error // why the object could not be read

	conditions []metav1.Condition
	steps      int // that they took
	// uncounted: by the rules it is complete, but the manifest was not applied yet.
	uncounted bool
}

// evaluated returns what the condition rules of m say about live. It does not evaluate them again
// for the object o that was observed.
func (r *Reconciler) evaluated(ctx context.Context, rec *reconciliation, o *observed, m *strategy.Manifest, live *unstructured.Unstructured) []metav1.Condition {
	switch {
	case live == nil || len(m.ConditionRules) == 0:
		return nil
	case sameState(live, o.live.Object):
		return o.conditions
	default:
		rec.budget.Refund(o.steps)
		return r.evaluate(ctx, rec, m, live)
	}
}

// evaluate returns what the condition rules of m say about live.
func (r *Reconciler) evaluate(ctx context.Context, rec *reconciliation, m *strategy.Manifest, live *unstructured.Unstructured) []metav1.Condition {
	b, key, state := rec.budget, budget.Key{Manifest: m.Meta.Ordinal, Kind: budget.ConditionRules}, stateOf(live)
	before := b.Left()
	if kept, ok := b.Kept(key, state); ok {
		return slices.Clone(kept.([]metav1.Condition))
	}
	conditions := r.Rules.OfWork(b).Evaluate(ctx, m.ConditionRules, live)
	condition.CutEvaluated(conditions, len(rec.manifests))
	keepConditions(b, key, state, before, conditions)
	return conditions
}

// sameState reports whether a and b are one object in one state.
func sameState(a, b *unstructured.Unstructured) bool {
	return a == b || b != nil && a.GetUID() == b.GetUID() && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// ruleTypes returns the condition types that the rules of a manifest can set.
func ruleTypes(m *strategy.Manifest) []string {
	return conditionrules.ConditionTypes(m.ConditionRules, m.Kind())
}
