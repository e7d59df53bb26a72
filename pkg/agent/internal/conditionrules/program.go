package conditionrules

import (
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/utils/lru"

	"github.com/workwire/workwire/pkg/runtime/expression"
)

// maxCached is the length of expressions whose programs are kept: those of long ones are large.
const maxCached = 1_024

// source is the text of an expression. A message expression has an additional variable.
type source struct {
	text    string
	message bool
}

// program compiles an expression once. The error is an *expression.SyntaxError or an *expression.BuildError.
type program func() (*expression.Program, error)

// programs compiles expressions and caches the results. It is safe for concurrent use.
type programs struct {
	expressions, messages *expression.Compiler

	mu    sync.Mutex // held to find or add an entry, but not to compile
	cache *lru.Cache // source → program
}

func newPrograms(size int) (*programs, error) {
	options := []cel.EnvOption{
		cel.Function("hasConditions", cel.Overload("has_conditions_dyn", []*cel.Type{cel.DynType}, cel.BoolType,
			cel.UnaryBinding(hasConditions))),
		cel.Variable("object", cel.DynType),
	}
	expressions, err := expression.New(maxCost, options...)
	if err != nil {
		return nil, err
	}
	messages, err := expression.New(maxCost, append(options, cel.Variable("result", cel.BoolType))...)
	if err != nil {
		return nil, err
	}
	return &programs{expressions: expressions, messages: messages, cache: lru.New(size)}, nil
}

// find returns the program of a source, and whether it was in the cache. Each source is compiled once while it is
// there, even if it is invalid. A long one is compiled each time.
func (p *programs) find(src source) (found program, cached bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.cache.Get(src); ok {
		return known.(program), true
	}
	compiler := p.expressions
	if src.message {
		compiler = p.messages
	}
	found = sync.OnceValues(func() (*expression.Program, error) { return compiler.Compile(src.text) })
	if len(src.text) <= maxCached {
		p.cache.Add(src, found)
	}
	return found, false
}

// compileSteps returns what it costs to compile an expression. Type checking takes more time than in proportion to its
// length.
func compileSteps(text string) int { return 2_000 + len(text)*len(text)/50 }

// brief returns the text of an error without the lines that quote the expression.
func brief(err *expression.SyntaxError) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !strings.HasPrefix(line, " | ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

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
