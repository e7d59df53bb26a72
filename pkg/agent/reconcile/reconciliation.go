package reconcile

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/condition"
	"github.com/workwire/workwire/pkg/agent/conditionrules"
	"github.com/workwire/workwire/pkg/agent/executor"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	"github.com/workwire/workwire/pkg/agent/strategy/apply"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// reconciliation is one reconcile of a work that is not being deleted. The worker that does it owns
// it.
type reconciliation struct {
	logger     *slog.Logger
	entry      *entry
	work       *inbox.Entry
	known      *workv1.AppliedManifestWork // at the start; nil: none
	changed    bool                        // the spec is not that of the last reconcile
	previous   workv1.ManifestWorkStatus   // as last reported, or as known has it
	manifests  []strategy.Manifest
	account    *executor.Account // nil: none
	accountErr error
	last       *lastApplied
	dropped    []applied.Resource // known names them, the manifests do not
	tracked    []object.Ref       // objects of the manifests, and dropped ones
	observed   []observed         // of each manifest, before applying
	complete   completion
	backoff    bool // repairs have to wait

	outcomes     []apply.Outcome             // of each manifest
	removals     []apply.RemovalOutcome      // of each dropped resource
	amw          *workv1.AppliedManifestWork // as it is now; nil: not known
	requeueAfter time.Duration               // 0: when something changes
}

// history returns the history of the work's name.
func (rec *reconciliation) history() *history { return &rec.entry.history }

// skip reports whether manifest i is not applied this time.
func (rec *reconciliation) skip(i int) bool {
	return rec.backoff || rec.complete.work || rec.complete.manifests[i]
}

// watched returns the object of manifest i as a watch showed it at the start.
func (rec *reconciliation) watched(i int) (object.Live, bool) {
	return rec.observed[i].live, rec.observed[i].watched
}

// requeueWithin brings the next reconcile forward to within d; 0 does nothing.
func (rec *reconciliation) requeueWithin(d time.Duration) {
	if d > 0 && (rec.requeueAfter == 0 || d < rec.requeueAfter) {
		rec.requeueAfter = d
	}
}

// live returns the object of manifest i after applying, nil if there is none or it is not known.
func (rec *reconciliation) live(i int) *unstructured.Unstructured {
	if rec.untouched(i) {
		return rec.observed[i].live.Object
	}
	return rec.outcomes[i].Live
}

// untouched reports whether applying did not touch the object of manifest i.
func (rec *reconciliation) untouched(i int) bool {
	action := rec.outcomes[i].Action
	return action == apply.Observed || action == apply.Left || readOnly(&rec.manifests[i])
}

// applyError returns why manifest i is not applied, nil if it is. While repairs have to wait, that
// is the error from before.
func (rec *reconciliation) applyError(i int) error {
	if errs := rec.history().errs; rec.backoff && rec.outcomes[i].Action == apply.Left && i < len(errs) {
		return errs[i]
	}
	return rec.outcomes[i].Err
}

// missed reports whether an event is later than what the reconcile has observed or written.
func (rec *reconciliation) missed(events map[object.Ref]string) bool {
	if len(events) == 0 {
		return false
	}
	seen := make(map[object.Ref]string, len(rec.manifests)+1)
	if rec.amw != nil {
		seen[appliedManifestWorkRef(rec.entry.name)] = rec.amw.ResourceVersion
	}
	for i := range rec.outcomes {
		if live := rec.live(i); live != nil {
			seen[rec.manifests[i].Ref] = live.GetResourceVersion()
		}
	}
	for ref, version := range events {
		if have, ok := seen[ref]; !ok || object.Newer(version, have) {
			return true
		}
	}
	return false
}

// prepare parses the work, sets what is watched for it, and observes its objects.
func (r *Reconciler) prepare(ctx context.Context, logger *slog.Logger, e *entry, work *inbox.Entry) *reconciliation {
	known, _ := r.Applied.Get(e.name)
	rec := &reconciliation{
		logger: logger, entry: e, work: work, known: known,
		changed: e.history.spec != work, previous: r.previousStatus(logger, work, known),
	}
	if wait := time.Until(e.history.repairs.notBefore); !rec.changed && wait > 0 {
		rec.backoff = true
		rec.requeueWithin(wait)
	}
	rec.manifests = r.parse(ctx, work)
	rec.last = newLastApplied(&e.history, work, rec.manifests, func(spec *inbox.Entry) []strategy.Manifest { return r.parse(ctx, spec) })
	rec.account, rec.accountErr = executor.AccountOf(work.Spec.Executor)
	rec.tracked = manifestRefs(rec.manifests)
	if known != nil {
		rec.dropped = rec.droppedResources()
		rec.tracked = append(rec.tracked, refsOf(rec.dropped)...)
	}
	r.Table.await(e, unknownKinds(rec.manifests))
	r.watch(e, interest{objects: rec.tracked, named: namedRefs(rec.manifests), account: rec.account})
	wasComplete := condition.WasComplete(&rec.previous)
	rec.observed = r.observe(ctx, rec, wasComplete)
	rec.complete = completed(rec.manifests, rec.observed, wasComplete)
	return rec
}

// previousStatus returns the last status reported for the work or, after a restart, the one of its
// AppliedManifestWork.
func (r *Reconciler) previousStatus(logger *slog.Logger, work *inbox.Entry, known *workv1.AppliedManifestWork) workv1.ManifestWorkStatus {
	if last, ok := r.Outbox.Last(work.Key); ok {
		return last.Status
	}
	if known == nil || known.Annotations[applied.UIDAnnotation] != string(work.UID) {
		return workv1.ManifestWorkStatus{}
	}
	status, err := applied.DecodeTransitions(known.Status.Transitions)
	if err != nil {
		logger.Warn("decoding transitions failed; transition times and completion from before the restart are lost",
			"appliedManifestWork", known.Name, "error", err)
		return workv1.ManifestWorkStatus{}
	}
	return *status
}

// parse returns the work's manifests.
func (r *Reconciler) parse(ctx context.Context, work *inbox.Entry) []strategy.Manifest {
	manifests := strategy.Parse(&work.Spec, func(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
		return r.RESTMapper.RESTMapping(ctx, kind)
	})
	for i := range manifests {
		if manifests[i].Err == nil {
			manifests[i].Err = conditionrules.Validate(manifests[i].ConditionRules)
		}
	}
	return manifests
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
func namedRefs(manifests []strategy.Manifest) []object.Ref {
	var refs []object.Ref
	for i := range manifests {
		if m := &manifests[i]; readOnly(m) && m.FeedbackScrapeType == workv1.FeedbackScrapeTypeWatch {
			refs = append(refs, m.Ref)
		}
	}
	return refs
}

// unknownKinds returns the kinds of manifests that the cluster does not serve.
func unknownKinds(manifests []strategy.Manifest) []schema.GroupKind {
	var unknown []schema.GroupKind
	for i := range manifests {
		var err *meta.NoKindMatchError
		if errors.As(manifests[i].Err, &err) {
			unknown = append(unknown, err.GroupKind)
		}
	}
	return unknown
}

// droppedResources returns the objects that the AppliedManifestWork names and the manifests do not.
// It leaves out objects that a manifest of an unresolved kind may be about: a failed lookup is no
// reason to delete.
func (rec *reconciliation) droppedResources() []applied.Resource {
	resources, err := applied.Resources(rec.known)
	if err != nil {
		rec.logger.Warn(intentUnreadable, "appliedManifestWork", rec.known.Name, "error", err)
	}
	return slices.DeleteFunc(applied.Dropped(resources, rec.tracked), func(res applied.Resource) bool {
		if _, gone := rec.history().gone[res.Ref]; gone && res.UID == "" {
			return true
		}
		return slices.ContainsFunc(rec.manifests, func(m strategy.Manifest) bool { return mayBe(&m, res) })
	})
}

// mayBe reports whether a manifest of an unresolved kind may be about res.
func mayBe(m *strategy.Manifest, res applied.Resource) bool {
	return m.Ref == object.Ref{} && m.Meta.Group == res.Group && m.Meta.Name == res.Name
}

// readOnly reports whether a manifest is observed and never written.
func readOnly(m *strategy.Manifest) bool {
	return m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Ref != object.Ref{}
}
