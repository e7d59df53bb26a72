// Package expression compiles expressions of the Common Expression Language (CEL) that nobody vouches for,
// and evaluates them at a bounded cost:
//
//	compiler, err := expression.New(expression.MaxCost, cel.Variable("object", cel.DynType))
//	...
//	program, err := compiler.Compile(text)
//	...
//	value, cost, err := program.Run(ctx, map[string]any{"object": object}, budget)
//
// Expressions have the standard functions of CEL, its optional types and texts, and Kubernetes' libraries
// for lists, regular expressions, URLs, quantities, addresses, formats and semantic versions. Cost is in the
// units of cel-go and of these libraries. Where they count only after the work is done, or not at all,
// guard.go counts before.
package expression

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
)

const (
	// MaxCost is the highest limit of the cost of one expression.
	MaxCost = 1_000_000
	// MaxLength is the maximum length of an expression. Type checking takes time cubic in its size. These
	// limits keep it below a second and are far above the size of reasonable expressions.
	MaxLength = 10_000
	maxDepth  = 64
	maxLoops  = 64 // macros such as all, exists and map
	// checkEvery is the number of loop steps between checks of the context.
	checkEvery = 100
)

// ErrBudget is the error of an evaluation that costs more than its budget.
var ErrBudget = errors.New("CEL evaluation budget exceeded")

// Compiler compiles expressions. It is safe for concurrent use.
type Compiler struct {
	env   *cel.Env
	guard *guard
}

// New returns a Compiler of expressions whose evaluation costs limit at most, which is not above [MaxCost]. options
// add variables and functions.
func New(limit uint64, options ...cel.EnvOption) (*Compiler, error) {
	env, err := cel.NewEnv(append([]cel.EnvOption{
		cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(MaxLength),
		cel.ParserRecursionLimit(maxDepth),
		cel.OptionalTypes(),
		ext.Strings(),
		library.Lists(), library.Regex(), library.URLs(), library.Quantity(),
		library.IP(), library.CIDR(), library.Format(), library.SemverLib(library.SemverVersion(1)),
	}, options...)...)
	if err != nil {
		return nil, err
	}
	guard, err := newGuard(env, limit)
	if err != nil {
		return nil, err
	}
	return &Compiler{env: env, guard: guard}, nil
}

// Compile returns the program of an expression. The error is a [SyntaxError] if the expression is invalid, or else a
// [BuildError].
func (c *Compiler) Compile(text string) (program *Program, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			program, err = nil, &BuildError{fmt.Errorf("internal error: %v", panicked)}
		}
	}()
	parsed, issues := c.env.Parse(text)
	if issues.Err() != nil {
		return nil, &SyntaxError{issues.Err()}
	}
	if n := loops(parsed); n > maxLoops {
		return nil, &SyntaxError{fmt.Errorf("it has %d macros that loop (all, exists, exists_one, filter, map), at most %d are allowed", n, maxLoops)}
	}
	checked, issues := c.env.Check(parsed)
	if issues.Err() != nil {
		return nil, &SyntaxError{issues.Err()}
	}
	compiled, err := c.env.Program(checked,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(c.guard.limit),
		cel.CostTracking(estimator{&library.CostEstimator{}}),
		cel.InterruptCheckFrequency(checkEvery),
		cel.CustomDecorator(c.guard.decorate),
	)
	if err != nil {
		return nil, &BuildError{err}
	}
	return &Program{compiled: compiled, limit: c.guard.limit, output: checked.OutputType()}, nil
}

// loops returns the number of loops in an expression.
func loops(parsed *cel.Ast) int {
	count := 0
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			count++
		}
	}))
	return count
}

// SyntaxError is the error of an invalid expression.
type SyntaxError struct{ error }

// BuildError is the error of a valid expression that cannot be turned into a program.
type BuildError struct{ error }

// Program is a compiled expression. It is safe for concurrent use.
type Program struct {
	compiled cel.Program
	limit    uint64
	output   *cel.Type
}

// MayReturn reports whether the value may be of type t.
func (p *Program) MayReturn(t *cel.Type) bool {
	return p.output.IsExactType(t) || p.output.IsExactType(cel.DynType)
}

// Run evaluates a program and returns the value and its cost. It adds a variable of its own to variables. It ends with
// [ErrBudget] when the cost is certainly more than budget; one that is not much more is returned with the value.
func (p *Program) Run(ctx context.Context, variables map[string]any, budget uint64) (ref.Val, uint64, error) {
	bound := &meter{ctx: ctx, left: budget}
	variables[meterName] = bound
	value, details, err := p.compiled.ContextEval(ctx, variables)
	var cost uint64
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	if bound.over {
		return nil, budget, ErrBudget
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		cost = max(cost, p.limit) // a call that the guard refused is not counted
	}
	return value, cost, err
}

// Until returns a context for [Program.Run] that ends at a time, without a timer.
func Until(ctx context.Context, end time.Time) context.Context { return until{ctx, end} }

// until is what Until returns. It has no channel that closes.
type until struct {
	context.Context //nolint:containedctx // it is a context
	end             time.Time
}

// Err makes it a [context.Context].
func (u until) Err() error {
	if time.Now().After(u.end) {
		return context.DeadlineExceeded
	}
	return u.Context.Err()
}

// maxFault is the maximum length in bytes of what Fault returns.
const maxFault = 256

// Fault returns what of the text of a failed evaluation is shown: its first line, 256 bytes of it at most.
func Fault(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	return strings.ToValidUTF8(text[:min(len(text), maxFault)], "")
}
