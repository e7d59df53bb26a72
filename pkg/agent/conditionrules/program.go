package conditionrules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/ext"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/lru"
)

const (
	// checkEvery is after how many steps of a loop the context is looked at.
	checkEvery = 100
	// Checking the types of an expression takes a time that grows with the cube of
	// its size; these keep it below a second. They are far above what a person
	// writes.
	maxLetters = 10_000
	maxDepth   = 64
	maxLoops   = 64 // macros such as all, exists and map
)

// source is the text of an expression. That of a message sees one more variable.
type source struct {
	text    string
	message bool
}

// program is a compiled expression, or the reason why there is none: a
// *compileError or a *buildError.
type program struct {
	once     sync.Once
	compiled cel.Program
	err      error
}

// run evaluates a program and gives the value and what it cost.
func (p *program) run(ctx context.Context, variables map[string]any) (ref.Val, uint64, error) {
	value, details, err := p.compiled.ContextEval(ctx, variables)
	var cost uint64
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		cost = max(cost, maxCost) // what the guard refused has not been counted
	}
	return value, cost, err
}

// programs compiles expressions and keeps the compiled ones. It is safe for
// concurrent use.
type programs struct {
	expressions, messages *cel.Env
	guard                 *guard

	mu   sync.Mutex // held to find or add an entry, not to compile
	kept *lru.Cache // source → *program
}

func newPrograms(size int) (*programs, error) {
	env, err := cel.NewEnv(
		cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(maxLetters),
		cel.ParserRecursionLimit(maxDepth),
		cel.OptionalTypes(),
		ext.Strings(),
		library.Lists(), library.Regex(), library.URLs(), library.Quantity(),
		library.IP(), library.CIDR(), library.Format(), library.SemverLib(library.SemverVersion(1)),
		cel.Function("hasConditions", cel.Overload("has_conditions_dyn", []*cel.Type{cel.DynType}, cel.BoolType,
			cel.UnaryBinding(hasConditions))),
		cel.Variable("object", cel.DynType),
	)
	if err != nil {
		return nil, err
	}
	messages, err := env.Extend(cel.Variable("result", cel.BoolType))
	if err != nil {
		return nil, err
	}
	guard, err := newGuard(env)
	if err != nil {
		return nil, err
	}
	return &programs{expressions: env, messages: messages, guard: guard, kept: lru.New(size)}, nil
}

// get gives the program of a source. Each source is compiled once for as long as
// it is kept, also when that fails.
func (p *programs) get(of source) *program {
	p.mu.Lock()
	var entry *program
	if known, ok := p.kept.Get(of); ok {
		entry = known.(*program)
	} else {
		entry = &program{}
		p.kept.Add(of, entry)
	}
	p.mu.Unlock()
	entry.once.Do(func() { entry.compiled, entry.err = p.compile(of) })
	return entry
}

func (p *programs) compile(of source) (compiled cel.Program, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			compiled, err = nil, &buildError{fmt.Errorf("internal error: %v", panicked)}
		}
	}()
	env := p.expressions
	if of.message {
		env = p.messages
	}
	parsed, issues := env.Parse(of.text)
	if issues.Err() != nil {
		return nil, &compileError{issues.Err()}
	}
	if n := loops(parsed); n > maxLoops {
		return nil, &compileError{fmt.Errorf("it has %d macros that loop (all, exists, exists_one, filter, map), at most %d are allowed", n, maxLoops)}
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, &compileError{issues.Err()}
	}
	compiled, err = env.Program(checked,
		cel.EvalOptions(cel.OptOptimize),
		cel.CostLimit(maxCost),
		cel.CostTracking(estimator{&library.CostEstimator{}}),
		cel.InterruptCheckFrequency(checkEvery),
		cel.CustomDecorator(p.guard.decorate),
	)
	if err != nil {
		return nil, &buildError{err}
	}
	return compiled, nil
}

// loops counts the loops in an expression.
func loops(parsed *cel.Ast) int {
	count := 0
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.ComprehensionKind {
			count++
		}
	}))
	return count
}

// compileError says that an expression is not correct.
type compileError struct{ err error }

func (e *compileError) Error() string { return e.err.Error() }
func (e *compileError) Unwrap() error { return e.err }

// brief is the error without the lines that quote the expression.
func (e *compileError) brief() string {
	var lines []string
	for line := range strings.SplitSeq(e.Error(), "\n") {
		if !strings.HasPrefix(line, " | ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// buildError says that no program can be made of a correct expression.
type buildError struct{ err error }

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

// hasConditions reports whether a value is a map whose conditions is a list that
// is not empty.
func hasConditions(value ref.Val) ref.Val {
	object, ok := value.(traits.Mapper)
	if !ok {
		return types.False
	}
	found, ok := object.Find(types.String("conditions"))
	if !ok {
		return types.False
	}
	list, ok := found.(traits.Lister)
	return types.Bool(ok && list.Size() != types.IntZero)
}
