package ignore

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
)

// jq counts neither memory nor the time of a single step: with one expression that multiplies texts,
// collects lists or nests them in one another, a step takes gigabytes or hours
// (docs/adr/0026-budgets.md). What is available therefore selects and compares, and makes no value
// that is larger than its input. Functions whose cost is the product of two values are replaced by
// ones that look at their sizes first.

// operators that are available.
var operators = []gojq.Operator{
	gojq.OpPipe, gojq.OpComma, gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe, gojq.OpAnd, gojq.OpOr, gojq.OpAlt,
}

// functions that are available, by name and number of arguments.
var functions = sets.New(strings.Fields("select/1 recurse/0 values/0 nulls/0 strings/0 numbers/0 booleans/0 objects/0 arrays/0 iterables/0 scalars/0 " +
	"empty/0 not/0 has/1 in/1 keys/0 keys_unsorted/0 length/0 utf8bytelength/0 type/0 tostring/0 tonumber/0 ascii_downcase/0 ascii_upcase/0 " +
	"startswith/1 endswith/1 ltrimstr/1 rtrimstr/1 trim/0 ltrim/0 rtrim/0 first/0 first/1 last/0 last/1 nth/1 limit/2 isempty/1 " +
	"any/0 any/1 any/2 all/0 all/1 all/2 IN/1 IN/2 paths/0 paths/1 getpath/1")...)

// copying are the functions that copy their input. An expression has maxCopying of them.
var copying = sets.New("keys/0", "keys_unsorted/0", "tostring/0", "ascii_downcase/0", "ascii_upcase/0", "split/1")

const maxCopying = 8

// guarded are the functions that are replaced by ones with the prefix guardedPrefix.
var guarded = map[string]struct {
	minArgs, maxArgs int
	cost             func(input any, args []any) (steps int, affordable bool)
}{
	"contains": {1, 1, costOfProduct},
	"inside":   {1, 1, costOfProduct},
	"index":    {1, 1, costOfProduct},
	"rindex":   {1, 1, costOfProduct},
	"indices":  {1, 1, costOfProduct},
	"split":    {1, 1, costOfSplit},
	"test":     {1, 2, costOfPattern},
}

const (
	guardedPrefix = "guarded_"
	maxProduct    = 1_000_000
	maxSplit      = 64 << 10 / bytesPerNode
	maxPattern    = 256        // bytes of a regular expression
	maxMatching   = 20_000_000 // bytes of a text times instructions of a regular expression
	bytesPerNode  = 16         // bytes of a text that cost as much as a value
	partsPerStep  = 16         // of the two products above
)

// restrict replaces guarded functions in an expression. It fails if something is not available.
func restrict(expression *gojq.Query) error {
	r := restriction{}
	r.query(expression)
	if r.err == nil && r.copying > maxCopying {
		return fmt.Errorf("it has %d functions that copy, such as keys, at most %d are allowed", r.copying, maxCopying)
	}
	return r.err
}

// restriction is one call of restrict.
type restriction struct {
	copying int
	err     error
}

func (r *restriction) refuse(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is not available in ignoreFields", what)
	}
}

func (r *restriction) query(q *gojq.Query) {
	if q == nil {
		return
	}
	if len(q.FuncDefs) > 0 {
		r.refuse("def")
	}
	if q.Term != nil {
		r.term(q.Term)
		return
	}
	if !slices.Contains(operators, q.Op) {
		r.refuse("the operator " + q.Op.String())
	}
	r.query(q.Left)
	for _, pattern := range q.Patterns {
		r.pattern(pattern)
	}
	r.query(q.Right)
}

func (r *restriction) pattern(p *gojq.Pattern) {
	if p == nil {
		return
	}
	for _, item := range p.Array {
		r.pattern(item)
	}
	for _, field := range p.Object {
		r.text(field.KeyString)
		r.query(field.KeyQuery)
		r.pattern(field.Val)
	}
}

func (r *restriction) term(t *gojq.Term) {
	switch t.Type {
	case gojq.TermTypeIdentity, gojq.TermTypeRecurse, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
	case gojq.TermTypeIndex:
		r.index(t.Index)
	case gojq.TermTypeFunc:
		r.function(t.Func)
	case gojq.TermTypeUnary:
		r.term(t.Unary.Term)
	case gojq.TermTypeString:
		r.text(t.Str)
	case gojq.TermTypeIf:
		r.query(t.If.Cond)
		r.query(t.If.Then)
		for _, branch := range t.If.Elif {
			r.query(branch.Cond)
			r.query(branch.Then)
		}
		r.query(t.If.Else)
	case gojq.TermTypeTry:
		r.query(t.Try.Body)
		r.query(t.Try.Catch)
	case gojq.TermTypeQuery:
		r.query(t.Query)
	case gojq.TermTypeArray, gojq.TermTypeObject:
		if !isConstant(t) {
			r.refuse("a list or object that is not constant")
		}
	default:
		r.refuse(keyword(t))
	}
	for _, suffix := range t.SuffixList {
		r.index(suffix.Index)
	}
}

// keyword returns the word that a term which is not available begins with.
func keyword(t *gojq.Term) string {
	switch t.Type {
	case gojq.TermTypeReduce:
		return "reduce"
	case gojq.TermTypeForeach:
		return "foreach"
	case gojq.TermTypeLabel, gojq.TermTypeBreak:
		return "label"
	case gojq.TermTypeFormat:
		return t.Format
	}
	return "this syntax"
}

func (r *restriction) index(i *gojq.Index) {
	if i == nil {
		return
	}
	r.text(i.Str)
	r.query(i.Start)
	r.query(i.End)
}

func (r *restriction) text(s *gojq.String) {
	if s != nil && s.Queries != nil {
		r.refuse(`\( ) in a string`)
	}
}

func (r *restriction) function(f *gojq.Func) {
	name := fmt.Sprintf("%s/%d", f.Name, len(f.Args))
	if copying.Has(name) {
		r.copying++
	}
	guard, isGuarded := guarded[f.Name]
	switch {
	case isGuarded && len(f.Args) >= guard.minArgs && len(f.Args) <= guard.maxArgs:
		f.Name = guardedPrefix + f.Name
	case f.Name != "$ENV" && strings.HasPrefix(f.Name, "$") && !strings.HasPrefix(f.Name, "$__"), functions.Has(name):
	default:
		r.refuse(name)
	}
	for _, arg := range f.Args {
		r.query(arg)
	}
}

// isConstant reports whether a term is a literal.
func isConstant(t *gojq.Term) bool {
	if len(t.SuffixList) > 0 {
		return false
	}
	switch t.Type {
	case gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse, gojq.TermTypeNumber:
		return true
	case gojq.TermTypeUnary:
		return isConstant(t.Unary.Term)
	case gojq.TermTypeString:
		return t.Str.Queries == nil
	case gojq.TermTypeArray:
		return t.Array.Query == nil || areConstant(t.Array.Query)
	case gojq.TermTypeObject:
		return !slices.ContainsFunc(t.Object.KeyVals, func(field *gojq.ObjectKeyVal) bool {
			return field.KeyQuery != nil || field.KeyString != nil && field.KeyString.Queries != nil || strings.HasPrefix(field.Key, "$") ||
				field.Val == nil || !areConstant(field.Val)
		})
	}
	return false
}

// areConstant reports whether a query is a list of literals with commas between them.
func areConstant(q *gojq.Query) bool {
	if len(q.FuncDefs) > 0 || len(q.Patterns) > 0 {
		return false
	}
	if q.Term != nil {
		return isConstant(q.Term)
	}
	return q.Op == gojq.OpComma && areConstant(q.Left) && areConstant(q.Right)
}

// errExpensive is the error of a guarded function.
var errExpensive = fmt.Errorf("%w: the values are too large", ErrBudget)

// guardedCalls are jq's functions that are guarded, by name and number of arguments.
var guardedCalls = sync.OnceValue(func() map[string][]*gojq.Code {
	calls := map[string][]*gojq.Code{}
	for name, guard := range guarded {
		calls[name] = make([]*gojq.Code, guard.maxArgs+1)
		for n := guard.minArgs; n <= guard.maxArgs; n++ {
			arguments := []string{"$a", "$b"}[:n]
			calls[name][n] = mustCompile(name+"("+strings.Join(arguments, "; ")+")", arguments...)
		}
	}
	return calls
})

// meter is the budget that guarded functions spend from.
type meter struct{ budget *budget.Budget }

// guardedOptions returns the functions that replace the guarded ones.
func guardedOptions(m *meter) []gojq.CompilerOption {
	options := make([]gojq.CompilerOption, 0, len(guarded))
	for name, guard := range guarded {
		calls := guardedCalls()[name]
		options = append(options, gojq.WithFunction(guardedPrefix+name, guard.minArgs, guard.maxArgs, func(input any, args []any) any {
			steps, affordable := guard.cost(input, args)
			if !affordable {
				return errExpensive
			}
			if err := m.budget.Spend(steps); err != nil {
				return err
			}
			result, _ := calls[len(args)].Run(input, args...).Next()
			return result
		}))
	}
	return options
}

// size returns the number of values in a value, with a text as several. It stops at limit.
func size(value any, limit int) int {
	n := 1
	switch value := value.(type) {
	case string:
		n += len(value) / bytesPerNode
	case []any:
		for _, item := range value {
			if n >= limit {
				break
			}
			n += size(item, limit-n)
		}
	case map[string]any:
		for key, field := range value {
			if n >= limit {
				break
			}
			n += len(key)/bytesPerNode + size(field, limit-n)
		}
	}
	return n
}

// costOfProduct returns the steps of comparing each part of a value with each of another, and whether there are not too
// many.
func costOfProduct(input any, args []any) (steps int, affordable bool) {
	product := size(input, maxProduct) * size(args[0], maxProduct)
	return product / partsPerStep, product <= maxProduct
}

// costOfSplit is costOfProduct for split.
func costOfSplit(input any, _ []any) (steps int, affordable bool) {
	n := size(input, maxSplit)
	return n, n < maxSplit
}

// costOfPattern is costOfProduct for matching a text with a regular expression.
func costOfPattern(input any, args []any) (steps int, affordable bool) {
	text, _ := input.(string)
	pattern, ok := args[0].(string)
	if !ok || len(pattern) > maxPattern {
		return 0, !ok // jq says what is wrong
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, true
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, true
	}
	product := len(text) * len(compiled.Inst)
	return product / partsPerStep, product <= maxMatching
}
