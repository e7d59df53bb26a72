package reconcile

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// expressions is what is known of the expressions of a spec.
type expressions struct {
	of        *inbox.Entry
	expensive bool // they need the turn
	waits     bool // for it
	results   budget.Results
}

// beginExpressions returns the budget of a reconcile, or after how long to come again.
func (r *Reconciler) beginExpressions(h *history, work *inbox.Entry) (b *budget.Budget, wait time.Duration) {
	x := &h.expressions
	if x.of != work {
		r.dropResults(h)
		*x = expressions{of: work}
	}
	switch known := h.applied == nil && (h.spec == nil || h.spec == work); {
	case x.expensive:
		b, wait = r.Budgets.BeginTurn(work.Source, &x.results)
	case !known || len(work.Spec.ManifestConfigs) > 0 || r.watchesReadiness(work):
		b = r.Budgets.Begin(work.Source, &x.results)
	}
	x.waits = wait > 0
	return b, wait
}

// endExpressions ends beginExpressions. It returns after how long to do the reconcile again, 0 for no need.
func (r *Reconciler) endExpressions(h *history, b *budget.Budget) (wait time.Duration) {
	x := &h.expressions
	x.expensive, wait = r.Budgets.End(b)
	x.waits = b.Deferred()
	return wait
}

// dropResults forgets the results of expressions.
func (r *Reconciler) dropResults(h *history) {
	if x := &h.expressions; !x.results.IsZero() {
		r.Budgets.Drop(x.of.Source, &x.results)
	}
}

func stateOf(live *unstructured.Unstructured) budget.State {
	return budget.State{UID: live.GetUID(), Version: live.GetResourceVersion()}
}

// values are the feedback values of a manifest.
type values struct {
	found []workv1.FeedbackValue
	err   error
}

// feedback returns the feedback values of m, whose object is live. manifests is the number of those with rules.
func (r *Reconciler) feedback(rec *reconciliation, m *strategy.Manifest, live *unstructured.Unstructured, manifests int) ([]workv1.FeedbackValue, error) {
	b, key, state := rec.budget, budget.Key{Manifest: m.Meta.Ordinal, Kind: budget.FeedbackRules}, stateOf(live)
	before := b.Left()
	if kept, ok := b.Kept(key, state); ok {
		v := kept.(values)
		return slices.Clone(v.found), v.err
	}
	found, err := r.Feedback.Values(b, m.FeedbackRules, live, manifests)
	if b.Keeps() {
		b.Keep(key, state, before, values{slices.Clone(found), err}, sizeOf(found, err))
	}
	return found, err
}

func sizeOf(found []workv1.FeedbackValue, err error) int {
	const each = 128
	size := each
	for i := range found {
		size += each + len(found[i].Name)
		for _, text := range []*string{found[i].Value.String, found[i].Value.JsonRaw} {
			if text != nil {
				size += len(*text)
			}
		}
	}
	if err != nil {
		size += len(err.Error())
	}
	return size
}

// keepConditions keeps what condition rules resulted in.
func keepConditions(b *budget.Budget, key budget.Key, state budget.State, before int, conditions []metav1.Condition) {
	if !b.Keeps() {
		return
	}
	const each = 256
	size := each
	for i := range conditions {
		size += each + len(conditions[i].Message)
	}
	b.Keep(key, state, before, slices.Clone(conditions), size)
}
