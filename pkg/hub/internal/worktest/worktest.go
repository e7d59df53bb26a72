// Package worktest tests ManifestWorks by CEL expressions over their status. The expressions, of the stages of a
// RolloutPlan, have the variables
//
//	conditions  the status of each condition of the work, a map of texts by type
//	manifests   a list; each has group, version, kind, namespace and name, and its conditions and feedback, both maps
//
// with the functions of package expression, and parseJSON for raw feedback values.
package worktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/expression"
	"github.com/workwire/workwire/pkg/workstate"
)

const (
	// MaxCost is the most that the tests of one work cost together, in the units of CEL.
	MaxCost = 200_000
	// maxTime is the most time that they take together.
	maxTime = time.Second
	// DefaultTimeout is the time-out of a test that has none.
	DefaultTimeout = 10 * time.Minute
)

// Compiler compiles tests. It is safe for concurrent use.
type Compiler struct{ expressions *expression.Compiler }

// NewCompiler returns a Compiler. It takes some milliseconds.
func NewCompiler() (*Compiler, error) {
	expressions, err := expression.New(MaxCost, cel.Variable("conditions", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("manifests", cel.ListType(cel.DynType)), expression.JSON(), expression.Versions())
	if err != nil {
		return nil, fmt.Errorf("worktest: %w", err)
	}
	return &Compiler{expressions}, nil
}

// Test is a compiled test. It is safe for concurrent use.
type Test struct {
	// Name names it in messages.
	Name string
	// Timeout is how long after a cluster has succeeded the test may fail before the cluster has.
	Timeout time.Duration
	program *expression.Program
}

// Compile returns the tests of a stage. Its error joins one error for each that is invalid.
func (c *Compiler) Compile(from []workwirev1alpha1.RolloutTest) ([]Test, error) {
	var tests []Test
	var errs []error
	for _, f := range from {
		program, err := c.expressions.Compile(f.Expression)
		switch {
		case err != nil:
			err = errors.New(expression.Fault(err.Error()))
		case !program.MayReturn(cel.BoolType):
			err = errors.New("it does not return a bool")
		case f.Timeout.Duration < 0:
			err = fmt.Errorf("timeout is %s: must not be negative", f.Timeout.Duration)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("test %s: %w", f.Name, err))
			continue
		}
		tests = append(tests, Test{Name: f.Name, Timeout: cmp.Or(f.Timeout.Duration, DefaultTimeout), program: program})
	}
	return tests, errors.Join(errs...)
}

// Failure is a test that is not true of a work.
type Failure struct {
	*Test
	// Message says which, and why.
	Message string
}

// Run returns the tests that are not true of a work, whose status is unpacked.
func Run(tests []Test, work *workv1.ManifestWork) []Failure {
	if len(tests) == 0 {
		return nil
	}
	variables := map[string]any{"conditions": statuses(work.Status.Conditions, func(c metav1.Condition) bool { return c.ObservedGeneration == work.Generation }), "manifests": manifests(work)}
	ctx := expression.Until(context.Background(), time.Now().Add(maxTime))
	budget := uint64(MaxCost)
	var failures []Failure
	for i := range tests {
		t := &tests[i]
		value, cost, err := t.program.Run(ctx, variables, budget)
		budget -= min(cost, budget)
		switch {
		case err != nil && (budget == 0 || ctx.Err() != nil):
			err = errors.New("the tests cost too much for one cluster")
		case err == nil && value == types.True:
			continue
		case err == nil && value != types.False:
			err = fmt.Errorf("it returns a %s, not a bool", value.Type().TypeName())
		case err == nil:
			err = errors.New("not true")
		}
		failures = append(failures, Failure{Test: t, Message: fmt.Sprintf("test %s: %s", t.Name, expression.Fault(err.Error()))})
	}
	return failures
}

// statuses returns the statuses of the conditions that count.
func statuses(conditions []metav1.Condition, counts func(metav1.Condition) bool) map[string]string {
	by := make(map[string]string, len(conditions))
	for _, c := range conditions {
		if counts(c) {
			by[c.Type] = string(c.Status)
		}
	}
	return by
}

func manifests(work *workv1.ManifestWork) []any {
	list := make([]any, 0, len(work.Status.ResourceStatus.Manifests))
	for _, m := range work.Status.ResourceStatus.Manifests {
		feedback := make(map[string]any, len(m.StatusFeedbacks.Values))
		for _, v := range m.StatusFeedbacks.Values {
			if value := workstate.Value(v.Value); value != nil {
				feedback[v.Name] = value
			}
		}
		list = append(list, map[string]any{
			"group": m.ResourceMeta.Group, "version": m.ResourceMeta.Version, "kind": m.ResourceMeta.Kind,
			"namespace": m.ResourceMeta.Namespace, "name": m.ResourceMeta.Name,
			"conditions": statuses(m.Conditions, func(metav1.Condition) bool { return true }), "feedback": feedback,
		})
	}
	return list
}
