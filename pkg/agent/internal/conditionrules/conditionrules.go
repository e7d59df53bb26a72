// Package conditionrules evaluates the condition rules of a manifest on its live object.
//
//	evaluator, err := conditionrules.New()
//	...
//	if err := conditionrules.Validate(manifest.ConditionRules); err != nil {
//		// the manifest is refused, for instance because a rule sets a built-in condition
//	}
//	conditions := evaluator.Evaluate(ctx, manifest.ConditionRules, live)
//
// A rule of type CEL has expressions, which are evaluated in order until one is false. A rule of
// type WellKnownConditions has a built-in test. Each rule results in one condition, whose reasons
// and messages are API: docs/conditions.md lists them.
//
// Expressions are untrusted. A faulty one results in a condition that describes the fault, never in
// an error of the agent. Their cost is limited to 1,000,000 for an expression, in the units of
// [expression], and by the budget of the work.
package conditionrules

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// maxPrograms is the number of compiled expressions in the cache, which evicts the least
	// recently used ones.
	maxPrograms = 1024
	// maxRules is the maximum number of rules of a manifest.
	maxRules = 64
	// maxType is the maximum length in bytes of a condition's type.
	maxType = 316
)

// Evaluator evaluates condition rules. It is safe for concurrent use.
type Evaluator struct {
	programs *programs
	budget   *budget.Budget
}

// OfWork returns an Evaluator for the manifests of one work, whose expressions spend from b. It shares the
// compiled expressions of e.
func (e *Evaluator) OfWork(b *budget.Budget) *Evaluator {
	return &Evaluator{programs: e.programs, budget: b}
}

// New returns an Evaluator. It returns an error only if the CEL environment cannot be created.
func New() (*Evaluator, error) {
	programs, err := newPrograms(maxPrograms)
	if err != nil {
		return nil, fmt.Errorf("create the CEL environment of condition rules: %w", err)
	}
	return &Evaluator{programs: programs}, nil
}

// Evaluate returns the conditions that rules set for a live object, in the order of the rules,
// without ObservedGeneration and LastTransitionTime. A rule without a condition type sets none, nor
// does a rule of type WellKnownConditions without a built-in test. If several rules set the same
// condition, the last one decides, in the position of the first.
//
// Failures are reported as conditions. When ctx ends, evaluation stops soon, and the remaining
// rules result in Unknown: do not report them. Evaluate does not modify live, which must not change
// in the meantime, and does not panic, whatever live contains. Without live there are no
// conditions.
func (e *Evaluator) Evaluate(ctx context.Context, rules []workv1.ConditionRule, live *unstructured.Unstructured) []metav1.Condition {
	if live == nil || len(rules) == 0 {
		return nil
	}
	e.budget.Start()
	defer e.budget.Stop()
	run := &evaluation{Evaluator: e, object: live.Object, kind: live.GroupVersionKind()}
	conditions := make([]metav1.Condition, 0, len(rules))
	indexes := make(map[string]int, len(rules))
	for i := range rules {
		if !setsCondition(&rules[i], run.kind) {
			continue
		}
		c := run.rule(ctx, &rules[i])
		c.Type, c.Message = rules[i].Condition, condition.Cut(c.Message, condition.MaxMessage)
		if index, again := indexes[c.Type]; again {
			conditions[index] = c
			continue
		}
		indexes[c.Type] = len(conditions)
		conditions = append(conditions, c)
	}
	return conditions
}

// ConditionTypes returns the types of the conditions that rules set for objects of kind, without
// duplicates, in the order of [Evaluator.Evaluate].
func ConditionTypes(rules []workv1.ConditionRule, kind schema.GroupVersionKind) []string {
	var types []string
	for i := range rules {
		if setsCondition(&rules[i], kind) && !slices.Contains(types, rules[i].Condition) {
			types = append(types, rules[i].Condition)
		}
	}
	return types
}

func setsCondition(rule *workv1.ConditionRule, kind schema.GroupVersionKind) bool {
	if rule.Type == workv1.WellKnownConditionsType {
		return wellKnown(kind, rule.Condition) != nil
	}
	return rule.Condition != ""
}

var typePattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

// Validate returns an error for the first invalid rule: one whose condition the agent sets itself
// or is not a condition type of the Kubernetes API, or a CEL rule without a condition. The error
// identifies the rule and says what to do; it is suitable as the message of a condition.
func Validate(rules []workv1.ConditionRule) error {
	if len(rules) > maxRules {
		return fmt.Errorf("there are %d conditionRules, at most %d are allowed", len(rules), maxRules)
	}
	for i := range rules {
		if err := validateRule(&rules[i]); err != nil {
			return fmt.Errorf("conditionRules[%d] %w", i, err)
		}
	}
	return nil
}

func validateRule(rule *workv1.ConditionRule) error {
	kind := rule.Condition
	switch {
	case kind == "" && rule.Type == workv1.WellKnownConditionsType:
		return nil // sets no condition
	case kind == "":
		return errors.New("names no condition: set its condition, such as Complete")
	case condition.BuiltIn(kind):
		return fmt.Errorf("sets the condition %s, which the agent or the hub sets itself: name another condition, such as Complete", kind)
	case len(kind) > maxType || !typePattern.MatchString(kind):
		return fmt.Errorf("sets the condition %q, which is no condition type: name one of at most %d letters, digits, '-', '_' and '.', such as Complete",
			kind[:min(len(kind), maxType)], maxType)
	}
	return nil
}
