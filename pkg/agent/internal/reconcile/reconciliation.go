package reconcile

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// subject is a work that is reconciled, and the entry of its name. The worker that holds the entry owns it.
type subject struct {
	logger *slog.Logger // names the work
	entry  *entry
	work   *inbox.Entry
}

// history returns the history of the work's name.
func (s *subject) history() *history { return &s.entry.history }

// reconciliation is one reconcile of a work that is not being deleted. The worker that does it owns
// it.
type reconciliation struct {
	subject
	known      *workv1.AppliedManifestWork // at the start; nil: none
	changed    bool                        // the spec is not that of the last reconcile
	previous   workv1.ManifestWorkStatus   // as last reported, or as known has it
	manifests  []strategy.Manifest
	account    *executor.Account // nil: none
	accountErr error
	policy     *policy.Policy // in force during the reconcile
	refusal    error          // why policy refuses the whole spec; nil: it does not
	withheld   []error        // of each manifest: why nothing of its object may be reported; nil if everything may
	last       *lastApplied
	budget     *budget.Budget     // of expressions
	dropped    []applied.Resource // known names them, the manifests do not
	undecided  []object.Ref       // known names them, and a manifest of an unresolved kind may be about them
	tracked    []object.Ref       // objects of the manifests, and dropped ones
	observed   []observed         // of each manifest, before applying
	complete   conditionrules.Completion
	dependsOn  []string           // names of works
	staged     *condition.Waiting // for the time to apply a new spec; nil: it has come
	order      *ordering

	// Why manifests are not tried this time, besides complete and order; see skip.
	repairsWait bool
	retryWaits  []bool

	knownDigests map[object.Ref]string // of known; nil: not read yet

	outcomes     []apply.Outcome             // of each manifest
	removals     removals                    // of each dropped resource
	amw          *workv1.AppliedManifestWork // as it is now; nil: not known
	requeueAfter time.Duration               // 0: when something changes
}

// skip reports whether manifest i is not tried this time. More than one reason may hold: what failed may be complete meanwhile.
func (rec *reconciliation) skip(i int) bool {
	return rec.repairsWait || // all of them, after a repair, until history.repairs.notBefore or a new spec; they keep their errors
		rec.retryWaits[i] || // after a failure, until failure.waits is over, entry.retry or a new spec; it has the outcome of its last attempt
		rec.complete.Of(i) || // as long as its rules say so; it is ready
		rec.order.skips(i) // until its stage is opened, which may be in this reconcile; for good if it is a hook that has run
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
	if rec.withholds(i) != nil {
		return nil
	}
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
// is the error from before; but not if it may tell of an object that is withheld.
func (rec *reconciliation) applyError(i int) error {
	if err := rec.withholds(i); err != nil && rec.manifests[i].Err == nil {
		return err
	}
	if f := rec.history().failures[i]; f != nil && rec.repairsWait && rec.outcomes[i].Action == apply.Left {
		return f.outcome.Err
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
		} else if rec.withholds(i) != nil {
			delete(events, rec.manifests[i].Ref)
		}
	}
	for ref, version := range events {
		if have, ok := seen[ref]; !ok || object.Newer(version, have) {
			return true
		}
	}
	return false
}

// mayBe reports whether a manifest of an unresolved kind may be about res.
func mayBe(m *strategy.Manifest, res applied.Resource) bool {
	return m.Ref == object.Ref{} && m.Meta.Group == res.Group && m.Meta.Name == res.Name
}

// readOnly reports whether a manifest is observed and never written.
func readOnly(m *strategy.Manifest) bool {
	return m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Ref != object.Ref{}
}
