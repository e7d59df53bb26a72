package conditionrules

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	// maxCost is the maximum cost of one expression.
	maxCost = 1_000_000
	// maxTotalCost is the maximum total cost of the expressions of all rules of a manifest, and
	// separately of their message expressions.
	maxTotalCost = 10_000_000
)

var errBudget = errors.New("CEL evaluation budget exceeded")

// outcome is the result of a rule: a condition without its type.
type outcome struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// evaluation evaluates the rules of one manifest. It is not safe for concurrent use.
type evaluation struct {
	programs *programs
	object   map[string]any
	kind     schema.GroupVersionKind
	// The remaining budgets. Messages have their own, so that a long one cannot cost a rule its
	// result.
	expressions, messages budget
}

type budget struct{ left uint64 }

// spend subtracts cost and reports whether the budget was sufficient.
func (b *budget) spend(cost uint64) bool {
	enough := cost <= b.left
	b.left -= min(cost, b.left)
	return enough
}

func newEvaluation(programs *programs, live *unstructured.Unstructured) *evaluation {
	return &evaluation{
		programs: programs, object: live.Object, kind: live.GroupVersionKind(),
		expressions: budget{left: maxTotalCost}, messages: budget{left: maxTotalCost},
	}
}

// rule returns the outcome of a rule, or false if it sets no condition.
func (e *evaluation) rule(ctx context.Context, rule *workv1.ConditionRule) (outcome, bool) {
	if !setsCondition(rule, e.kind) {
		return outcome{}, false
	}
	if ctx.Err() != nil {
		return stopped(ctx), true
	}
	switch rule.Type {
	case workv1.CelConditionExpressionsType:
		for _, text := range rule.CelExpressions {
			result, bad := e.test(ctx, text)
			if bad != nil {
				return *bad, true
			}
			if !result {
				return e.evaluated(ctx, rule, false, ""), true
			}
		}
		return e.evaluated(ctx, rule, true, ""), true
	case workv1.WellKnownConditionsType:
		result, message := wellKnown(e.kind, rule.Condition)(e.object)
		return e.evaluated(ctx, rule, result, message), true
	default:
		return outcome{metav1.ConditionUnknown, workv1.ReasonConditionRuleInvalid,
			fmt.Sprintf("unrecognized condition rule type %s", rule.Type)}, true
	}
}

// test evaluates one expression of a rule. If that fails, it returns the outcome of the rule.
func (e *evaluation) test(ctx context.Context, text string) (bool, *outcome) {
	value, err := e.value(ctx, source{text: text}, &e.expressions, map[string]any{"object": e.object})
	var notBuilt *buildError
	switch {
	case ctx.Err() != nil:
		o := stopped(ctx)
		return false, &o
	case errors.As(err, &notBuilt):
		return false, &outcome{metav1.ConditionUnknown, workv1.ReasonConditionRuleInternalError, err.Error()}
	case err != nil:
		return false, &outcome{metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError, err.Error()}
	}
	result, ok := value.(types.Bool)
	if !ok {
		return false, &outcome{metav1.ConditionFalse, workv1.ReasonConditionRuleExpressionError,
			"expected bool result, got " + nativeType(value)}
	}
	return bool(result), nil
}

// evaluated returns the outcome of a rule with result. builtIn is the message of a well-known rule.
func (e *evaluation) evaluated(ctx context.Context, rule *workv1.ConditionRule, result bool, builtIn string) outcome {
	o := outcome{metav1.ConditionFalse, workv1.ReasonConditionRuleEvaluated, "Manifest is not " + rule.Condition}
	if result {
		o.status, o.message = metav1.ConditionTrue, "Manifest is "+rule.Condition
	}
	if rule.Message != "" {
		o.message = rule.Message
	}
	if rule.MessageExpression == "" {
		if builtIn != "" {
			o.message = builtIn
		}
		return o
	}
	text, err := e.text(ctx, rule.MessageExpression, result)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx)
	case err != nil:
		o.message = err.Error()
	case text != "":
		o.message = text
	}
	return o
}

// text evaluates a message expression.
func (e *evaluation) text(ctx context.Context, expression string, result bool) (string, error) {
	value, err := e.value(ctx, source{text: expression, message: true}, &e.messages, map[string]any{"object": e.object, "result": result})
	var notCompiled *compileError
	if errors.As(err, &notCompiled) {
		return "", errors.New(notCompiled.brief())
	}
	if err != nil {
		return "", err
	}
	text, ok := value.(types.String)
	if !ok {
		return "", errors.New("expected message expression to have a string result, got " + nativeType(value))
	}
	return string(text), nil
}

// value evaluates an expression and subtracts its cost from the budget.
func (e *evaluation) value(ctx context.Context, src source, from *budget, variables map[string]any) (ref.Val, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case from.left == 0:
		return nil, errBudget
	}
	p := e.programs.get(src)
	if p.err != nil {
		return nil, p.err
	}
	value, cost, err := p.run(ctx, variables)
	enough := from.spend(cost)
	if err == nil && !enough {
		err = errBudget
	}
	return value, err
}

// stopped returns the outcome of a rule whose evaluation was stopped.
func stopped(ctx context.Context) outcome {
	return outcome{metav1.ConditionUnknown, workv1.ReasonConditionRuleInternalError,
		fmt.Sprintf("the evaluation was stopped: %v", ctx.Err())}
}

// nativeType returns the name of the Go type of a value.
func nativeType(value ref.Val) string {
	if _, ok := value.(*types.Optional); ok {
		return "optional"
	}
	return fmt.Sprintf("%T", value.Value())
}
