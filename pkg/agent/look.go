package agent

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

// sight is what is seen of a manifest's object before it is applied, and what
// the manifest's rules say of it.
type sight struct {
	live    object.Live
	watched bool  // live is what a watch shows of the agent's own objects
	err     error // why it could not be read

	conditions  []metav1.Condition
	evaluatedOf *unstructured.Unstructured
}

// evaluate evaluates the manifest's rules on the object.
func (s *sight) evaluate(ctx context.Context, evaluator *conditionrules.Evaluator, m *strategy.Manifest) {
	if len(m.ConditionRules) > 0 {
		s.conditions = s.of(ctx, evaluator, m, s.live.Object)
		s.evaluatedOf = s.live.Object
	}
}

// of gives what the rules say of live, without evaluating them again for an
// object that has not changed.
func (s *sight) of(ctx context.Context, evaluator *conditionrules.Evaluator, m *strategy.Manifest, live *unstructured.Unstructured) []metav1.Condition {
	switch {
	case live == nil || len(m.ConditionRules) == 0:
		return nil
	case sameState(live, s.evaluatedOf):
		return s.conditions
	default:
		return evaluator.Evaluate(ctx, m.ConditionRules, live)
	}
}

// sameState says whether two objects are one, seen in one state.
func sameState(a, b *unstructured.Unstructured) bool {
	return a == b || b != nil && a.GetUID() == b.GetUID() && a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion()
}

// look sees after the manifests' objects: in memory where a watch shows them, by
// asking the API server where none does and applying does not read them either.
// Those are objects that the agent does not write, ReadOnly ones, and ones that
// it leaves alone.
func (a *Agent) look(ctx context.Context, u *under, was func(workv1.ManifestResourceMeta) bool) []sight {
	var watched []object.Ref
	for i := range u.manifests {
		if m := &u.manifests[i]; readOnly(m) && m.FeedbackScrapeType == workv1.FeedbackScrapeTypeWatch {
			watched = append(watched, m.Ref)
		}
	}
	a.named.Want(u.name, watched)
	sights := make([]sight, len(u.manifests))
	for i := range u.manifests {
		m, s := &u.manifests[i], &sights[i]
		if m.Ref == (object.Ref{}) {
			continue
		}
		s.live = a.objects.Get(m.Ref)
		if s.watched = s.live.State == object.Present; s.watched {
			continue
		}
		if readOnly(m) {
			// What carries no label of the agent's is not in its watches.
			s.live = a.named.Get(m.Ref)
		}
		if s.live.State != object.Unknown || !readOnly(m) && !u.resting && !was(m.Meta) {
			continue
		}
		s.live, s.err = a.read(ctx, m.Ref)
		u.lookAgain(a.config.SyncInterval)
	}
	return sights
}

// read asks the API server for an object.
func (a *Agent) read(ctx context.Context, ref object.Ref) (object.Live, error) {
	live, err := a.client.Resource(ref.GroupVersionResource).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
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

// readOnly says whether a manifest is only looked at.
func readOnly(m *strategy.Manifest) bool {
	return m.Strategy == workv1.UpdateStrategyTypeReadOnly && m.Ref != object.Ref{}
}
