package reconcile

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/conditionrules"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// observed is the object of a manifest before it is applied, and what the manifest's condition rules
// say about it.
type observed struct {
	live    object.Live
	watched bool  // live comes from a watch of the agent's own objects
	err     error // why the object could not be read

	conditions []metav1.Condition
}

// evaluate returns what the condition rules of m say about live. It does not evaluate them again for
// the object that was observed.
func (o *observed) evaluate(ctx context.Context, evaluator *conditionrules.Evaluator, m *strategy.Manifest, live *unstructured.Unstructured) []metav1.Condition {
	switch {
	case live == nil || len(m.ConditionRules) == 0:
		return nil
	case sameState(live, o.live.Object):
		return o.conditions
	default:
		return evaluator.Evaluate(ctx, m.ConditionRules, live)
	}
}

// sameState reports whether a and b are one object in one state.
func sameState(a, b *unstructured.Unstructured) bool {
	return a == b || b != nil && a.GetUID() == b.GetUID() && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// observe returns the state of each manifest's object: from memory if it is watched, else from the
// API server if applying does not read it either. Applying does not read the objects that the agent
// does not write, because they are ReadOnly or because it skips them.
func (r *Reconciler) observe(ctx context.Context, rec *reconciliation, wasComplete func(workv1.ManifestResourceMeta) bool) []observed {
	all := make([]observed, len(rec.manifests))
	for i := range rec.manifests {
		m, o := &rec.manifests[i], &all[i]
		if m.Ref == (object.Ref{}) {
			continue
		}
		o.live = r.Objects.Get(m.Ref)
		o.watched = o.live.State == object.Present
		if !o.watched && readOnly(m) {
			o.live = r.Named.Get(m.Ref) // the agent's watches select its label
		}
		if !o.watched && o.live.State == object.Unknown && (readOnly(m) || rec.backoff || wasComplete(m.Meta)) {
			o.live, o.err = r.read(ctx, m.Ref)
			rec.requeueWithin(r.SyncInterval)
		}
		if len(m.ConditionRules) > 0 && o.live.Object != nil {
			o.conditions = r.Rules.Evaluate(ctx, m.ConditionRules, o.live.Object)
		}
	}
	return all
}

// read reads an object from the API server.
func (r *Reconciler) read(ctx context.Context, ref object.Ref) (object.Live, error) {
	live, err := r.Client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		live.SetManagedFields(nil)
		return object.Live{State: object.Present, Object: live}, nil
	case apierrors.IsNotFound(err):
		return object.Live{State: object.Absent}, nil
	default:
		return object.Live{}, err
	}
}
