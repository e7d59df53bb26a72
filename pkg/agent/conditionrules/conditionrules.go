package conditionrules

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/workwire/workwire/pkg/agent/condition"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const (
	defaultMaxPrograms = 1024
	// maxTime bounds one call of Evaluate. The costs are bounded too: it is for what
	// they underrate.
	maxTime = 30 * time.Second
	// maxMessage is the most bytes of a condition's message: what the API takes.
	maxMessage = 32768
	// maxType is the most bytes of a condition's type.
	maxType = 316
)

// Config configures [New].
type Config struct {
	// MaxPrograms is the most compiled expressions that are kept; those used least
	// recently go first. Default: 1024.
	MaxPrograms int
}

// Evaluator evaluates condition rules. It is safe for concurrent use.
type Evaluator struct {
	programs *programs
}

// New returns an evaluator. It fails only if the CEL environment can not be
// made, which no configuration brings about.
func New(config Config) (*Evaluator, error) {
	if config.MaxPrograms <= 0 {
		config.MaxPrograms = defaultMaxPrograms
	}
	programs, err := newPrograms(config.MaxPrograms)
	if err != nil {
		return nil, fmt.Errorf("making the environment of condition rules: %w", err)
	}
	return &Evaluator{programs: programs}, nil
}

// Evaluate gives the conditions that rules set for a live object, in the order of
// the rules, without ObservedGeneration and LastTransitionTime. A rule that names
// no condition, and one of type WellKnownConditions for which nothing is built in,
// gives none. Where several rules set one condition, the last of them decides, in
// the place of the first.
//
// Every failure is told by a condition. When ctx ends, evaluation stops within
// moments, and the rules that are left give Unknown: they should not be reported.
// Evaluate does not change live, which must not change meanwhile, and does not
// panic, whatever it holds. Without live there are no conditions.
func (e *Evaluator) Evaluate(ctx context.Context, rules []workv1.ConditionRule, live *unstructured.Unstructured) []metav1.Condition {
	if live == nil || len(rules) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	run := newEvaluation(e.programs, live)
	conditions := make([]metav1.Condition, 0, len(rules))
	places := make(map[string]int, len(rules))
	for i := range rules {
		result, ok := run.rule(ctx, &rules[i])
		if !ok {
			continue
		}
		c := metav1.Condition{Type: rules[i].Condition, Status: result.status, Reason: result.reason, Message: cut(result.message)}
		if place, again := places[c.Type]; again {
			conditions[place] = c
			continue
		}
		places[c.Type] = len(conditions)
		conditions = append(conditions, c)
	}
	return conditions
}

// ConditionTypes returns the types of the conditions that rules set for objects of kind, each
// once, in the order in which [Evaluator.Evaluate] gives them.
func ConditionTypes(rules []workv1.ConditionRule, kind schema.GroupVersionKind) []string {
	var types []string
	for i := range rules {
		if gives(&rules[i], kind) && !slices.Contains(types, rules[i].Condition) {
			types = append(types, rules[i].Condition)
		}
	}
	return types
}

func gives(rule *workv1.ConditionRule, kind schema.GroupVersionKind) bool {
	if rule.Type == workv1.WellKnownConditionsType {
		return wellKnown(kind, rule.Condition) != nil
	}
	return rule.Condition != ""
}

var typePattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`)

// Validate refuses rules that can not do what they say: a rule whose condition the
// agent sets itself, or is not a condition type of the Kubernetes API, or a CEL
// rule that names none. The error is about the first such rule, names it and says
// what to do; it fits a condition's message.
func Validate(rules []workv1.ConditionRule) error {
	for i := range rules {
		if fault := fault(&rules[i]); fault != nil {
			return fmt.Errorf("conditionRules[%d] %w", i, fault)
		}
	}
	return nil
}

func fault(rule *workv1.ConditionRule) error {
	kind := rule.Condition
	switch {
	case kind == "" && rule.Type == workv1.WellKnownConditionsType:
		return nil // gives no condition
	case kind == "":
		return errors.New("names no condition: set its condition, such as Complete")
	case condition.BuiltIn(kind):
		return fmt.Errorf("sets the condition %s, which the agent sets itself: name another condition, such as Complete", kind)
	case len(kind) > maxType || !typePattern.MatchString(kind):
		return fmt.Errorf("sets the condition %q, which is no condition type: name one of at most %d letters, digits, '-', '_' and '.', such as Complete",
			kind[:min(len(kind), maxType)], maxType)
	}
	return nil
}

// cut gives a text as a condition can hold it.
func cut(message string) string {
	if len(message) > maxMessage {
		message = message[:maxMessage]
	}
	return strings.ToValidUTF8(message, "")
}
