package reconcile

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/conditionrules"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
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

// ruleTypes returns the condition types that the rules of a manifest can set.
func ruleTypes(m *strategy.Manifest) []string {
	return conditionrules.ConditionTypes(m.ConditionRules, schema.GroupVersionKind{Group: m.Meta.Group, Version: m.Meta.Version, Kind: m.Meta.Kind})
}
