package conditionrules

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/expression"
)

// maxCost is the maximum cost of one expression.
const maxCost = expression.MaxCost

// evaluation evaluates the rules of one manifest. It is not safe for concurrent use.
type evaluation struct {
	*Evaluator
	object map[string]any
	kind   schema.GroupVersionKind
}

// rule returns the condition that a rule sets, without its type.
func (e *evaluation) rule(ctx context.Context, rule *workv1.ConditionRule) metav1.Condition {
	if ctx.Err() != nil {
		return stopped(ctx)
	}
	switch rule.Type {
	case workv1.CelConditionExpressionsType:
		for _, text := range rule.CelExpressions {
			result, bad := e.test(ctx, text)
			if bad != nil {
				return *bad
			}
			if !result {
				return e.evaluated(ctx, rule, false, "")
			}
		}
		return e.evaluated(ctx, rule, true, "")
	case workv1.WellKnownConditionsType:
		result, message := wellKnown(e.kind, rule.Condition)(e.object)
		return e.evaluated(ctx, rule, result, message)
	default:
		return metav1.Condition{Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRuleInvalid,
			Message: fmt.Sprintf("unrecognized condition rule type %s", rule.Type)}
	}
}

// test evaluates one expression of a rule. If that fails, it returns the condition of the rule.
func (e *evaluation) test(ctx context.Context, text string) (bool, *metav1.Condition) {
	value, err := e.value(ctx, source{text: text}, map[string]any{"object": e.object})
	var notBuilt *expression.BuildError
	switch {
	case ctx.Err() != nil:
		bad := stopped(ctx)
		return false, &bad
	case errors.As(err, &notBuilt):
		return false, &metav1.Condition{Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRuleInternalError, Message: err.Error()}
	case err == nil:
		if result, ok := value.(types.Bool); ok {
			return bool(result), nil
		}
		err = errors.New("expected bool result, got " + nativeType(value))
	}
	return false, &metav1.Condition{Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleExpressionError, Message: err.Error()}
}

// evaluated returns the condition of a rule with result. builtIn is the message of a well-known
// rule.
func (e *evaluation) evaluated(ctx context.Context, rule *workv1.ConditionRule, result bool, builtIn string) metav1.Condition {
	c := metav1.Condition{Status: metav1.ConditionFalse, Reason: workv1.ReasonConditionRuleEvaluated}
	fallback := "Manifest is not " + rule.Condition
	if result {
		c.Status, fallback = metav1.ConditionTrue, "Manifest is "+rule.Condition
	}
	if rule.MessageExpression == "" {
		c.Message = cmp.Or(builtIn, rule.Message, fallback)
		return c
	}
	c.Message = cmp.Or(rule.Message, fallback)
	text, err := e.text(ctx, rule.MessageExpression, result)
	switch {
	case ctx.Err() != nil:
		return stopped(ctx)
	case err != nil:
		c.Message = err.Error()
	case text != "":
		c.Message = text
	}
	return c
}

// text evaluates a message expression.
func (e *evaluation) text(ctx context.Context, text string, result bool) (string, error) {
	value, err := e.value(ctx, source{text: text, message: true}, map[string]any{"object": e.object, "result": result})
	if notCompiled, ok := errors.AsType[*expression.SyntaxError](err); ok {
		return "", errors.New(brief(notCompiled))
	}
	if err != nil {
		return "", err
	}
	message, ok := value.(types.String)
	if !ok {
		return "", errors.New("expected message expression to have a string result, got " + nativeType(value))
	}
	return string(message), nil
}

// value evaluates an expression, which spends from the budget of the work.
func (e *evaluation) value(ctx context.Context, src source, variables map[string]any) (value ref.Val, err error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	compile, cached := e.programs.find(src)
	if err := e.budget.Compile(src.text, compileSteps(src.text), cached); err != nil {
		return nil, err
	}
	p, err := compile()
	if err != nil {
		return nil, err
	}
	exceeded := e.budget.Run(maxCost, func(allowed int) (int, bool) {
		var cost uint64
		timed := &timed{Context: ctx, budget: e.budget}
		value, cost, err = p.Run(timed, variables, uint64(allowed))
		switch {
		case timed.late:
			err = expression.ErrBudget
		case err != nil && !errors.Is(err, expression.ErrBudget):
			err = withoutValues(err, src.text)
		case cost > uint64(allowed):
			err = expression.ErrBudget
		}
		return int(min(cost, maxCost)), errors.Is(err, expression.ErrBudget)
	})
	if exceeded != nil {
		return nil, exceeded
	}
	return value, err
}

// timed is a context that ends when the expressions of the work have taken too long.
type timed struct {
	context.Context //nolint:containedctx // it is a context
	budget          *budget.Budget
	late            bool
}

// Err makes it a [context.Context].
func (t *timed) Err() error {
	if t.late = t.late || t.budget.Late(); t.late {
		return context.DeadlineExceeded
	}
	return t.Context.Err()
}

// stopped returns the condition of a rule whose evaluation was stopped.
func stopped(ctx context.Context) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: workv1.ReasonConditionRuleInternalError,
		Message: fmt.Sprintf("the evaluation was stopped: %v", ctx.Err())}
}

// nativeType returns the name of the Go type of a value.
func nativeType(value ref.Val) string {
	if _, ok := value.(*types.Optional); ok {
		return "optional"
	}
	return fmt.Sprintf("%T", value.Value())
}
