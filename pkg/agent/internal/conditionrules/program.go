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
	// checkEvery is the number of loop steps between checks of the context.
	checkEvery = 100
	// Type checking takes time cubic in the size of an expression. These limits keep it below a
	// second and are far above the size of reasonable expressions.
	maxLength = 10_000
	// maxCached is the length of expressions whose programs are kept: those of long ones are large.
	maxCached = 1_024
	maxDepth  = 64
	maxLoops  = 64 // macros such as all, exists and map
)

// source is the text of an expression. A message expression has an additional variable.
type source struct {
	text    string
	message bool
}

// program is a compiled expression, or the error of compiling it: a *compileError or a *buildError.
type program struct {
	once     sync.Once
	build    func() (cel.Program, error)
	compiled cel.Program
	err      error
}

// run evaluates a program and returns the value and its cost. It ends with errBudget when the cost is
// certainly more than budget.
func (p *program) run(ctx context.Context, variables map[string]any, budget uint64) (ref.Val, uint64, error) {
	bound := &meter{ctx: ctx, left: budget}
	variables[meterName] = bound
	value, details, err := p.compiled.ContextEval(ctx, variables)
	var cost uint64
	if spent := details.ActualCost(); spent != nil {
		cost = *spent
	}
	if bound.over {
		return nil, budget, errBudget
	}
	var cancelled interpreter.EvalCancelledError
	if errors.As(err, &cancelled) {
		cost = max(cost, maxCost) // a call that the guard refused is not counted
	}
	return value, cost, err
}

// programs compiles expressions and caches the results. It is safe for concurrent use.
type programs struct {
	expressions, messages *cel.Env
	guard                 *guard

	mu    sync.Mutex // held to find or add an entry, but not to compile
	cache *lru.Cache // source → *program
}

func newPrograms(size int) (*programs, error) {
	env, err := cel.NewEnv(
		cel.EagerlyValidateDeclarations(true),
		cel.ParserExpressionSizeLimit(maxLength),
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
	return &programs{expressions: env, messages: messages, guard: guard, cache: lru.New(size)}, nil
}

// get returns the program of a source, compiled.
func (p *programs) get(src source) *program {
	found, _ := p.find(src)
	found.compile()
	return found
}

// find returns the program of a source, and whether it was in the cache. Each source is compiled once while it is
// there, even if it is invalid. A long one is compiled each time.
func (p *programs) find(src source) (found *program, cached bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.cache.Get(src); ok {
		return known.(*program), true
	}
	found = &program{build: func() (cel.Program, error) { return p.compile(src) }}
	if len(src.text) <= maxCached {
		p.cache.Add(src, found)
	}
	return found, false
}

// compile compiles a program once.
func (p *program) compile() {
	p.once.Do(func() { p.compiled, p.err = p.build() })
}

// compileSteps returns what it costs to compile an expression. Type checking takes more time than in proportion to its
// length.
func compileSteps(text string) int { return 2_000 + len(text)*len(text)/50 }

func (p *programs) compile(src source) (compiled cel.Program, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			compiled, err = nil, &buildError{fmt.Errorf("internal error: %v", panicked)}
		}
	}()
	env := p.expressions
	if src.message {
		env = p.messages
	}
	parsed, issues := env.Parse(src.text)
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

// compileError is the error of an invalid expression.
type compileError struct{ error }

// brief returns the error without the lines that quote the expression.
func (e *compileError) brief() string {
	var lines []string
	for line := range strings.SplitSeq(e.Error(), "\n") {
		if !strings.HasPrefix(line, " | ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// buildError is the error of a valid expression that cannot be turned into a program.
type buildError struct{ error }

// hasConditions reports whether a value is a map whose conditions are a list with items.
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
