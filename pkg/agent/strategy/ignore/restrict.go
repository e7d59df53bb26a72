package ignore

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
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
var functions = set("select/1 recurse/0 values/0 nulls/0 strings/0 numbers/0 booleans/0 objects/0 arrays/0 iterables/0 scalars/0 " +
	"empty/0 not/0 has/1 in/1 keys/0 keys_unsorted/0 length/0 utf8bytelength/0 type/0 tostring/0 tonumber/0 ascii_downcase/0 ascii_upcase/0 " +
	"startswith/1 endswith/1 ltrimstr/1 rtrimstr/1 trim/0 ltrim/0 rtrim/0 first/0 first/1 last/0 last/1 nth/1 limit/2 isempty/1 " +
	"any/0 any/1 any/2 all/0 all/1 all/2 IN/1 IN/2 paths/0 paths/1 getpath/1")

// copying are the functions that copy their input. An expression has maxCopying of them.
var copying = set("keys/0 keys_unsorted/0 tostring/0 ascii_downcase/0 ascii_upcase/0 split/1")

const maxCopying = 8

// guarded are the functions that are replaced by ones with the prefix guardedPrefix.
var guarded = map[string]struct {
	minArgs, maxArgs int
	affordable       func(input any, args []any) bool
}{
	"contains": {1, 1, affordableProduct},
	"inside":   {1, 1, affordableProduct},
	"index":    {1, 1, affordableProduct},
	"rindex":   {1, 1, affordableProduct},
	"indices":  {1, 1, affordableProduct},
	"split":    {1, 1, func(input any, _ []any) bool { return size(input, maxSplit) < maxSplit }},
	"test":     {1, 2, affordablePattern},
}

const (
	guardedPrefix = "guarded_"
	maxProduct    = 1_000_000
	maxSplit      = 64 << 10 / bytesPerNode
	maxPattern    = 256        // bytes of a regular expression
	maxMatching   = 20_000_000 // bytes of a text times instructions of a regular expression
	bytesPerNode  = 16         // bytes of a text that cost as much as a value
)

func set(names string) map[string]bool {
	all := map[string]bool{}
	for name := range strings.FieldsSeq(names) {
		all[name] = true
	}
	return all
}

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
	if copying[name] {
		r.copying++
	}
	guard, isGuarded := guarded[f.Name]
	switch {
	case isGuarded && len(f.Args) >= guard.minArgs && len(f.Args) <= guard.maxArgs:
		f.Name = guardedPrefix + f.Name
	case f.Name != "$ENV" && strings.HasPrefix(f.Name, "$") && !strings.HasPrefix(f.Name, "$__"), functions[name]:
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

// guardedOptions returns the functions that replace the guarded ones.
func guardedOptions() []gojq.CompilerOption {
	options := make([]gojq.CompilerOption, 0, len(guarded))
	for name, guard := range guarded {
		call := guardedCall(name)
		options = append(options, gojq.WithFunction(guardedPrefix+name, guard.minArgs, guard.maxArgs, func(input any, args []any) any {
			if !guard.affordable(input, args) {
				return errExpensive
			}
			return call(input, args)
		}))
	}
	return options
}

// guardedCall returns jq's function of this name.
func guardedCall(name string) func(input any, args []any) any {
	programs := map[int]*gojq.Code{}
	for args, call := range map[int]string{1: name + "($a)", 2: name + "($a; $b)"} {
		query, err := gojq.Parse(call)
		if err != nil {
			continue
		}
		variables := []string{"$a", "$b"}[:args]
		if program, err := gojq.Compile(query, gojq.WithVariables(variables)); err == nil {
			programs[args] = program
		}
	}
	return func(input any, args []any) any {
		program, ok := programs[len(args)]
		if !ok {
			return errors.New("it fails")
		}
		result, ok := program.Run(input, args...).Next()
		if !ok {
			return errors.New("it fails")
		}
		return result
	}
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

// affordableProduct reports whether each part of a value can be compared with each of another.
func affordableProduct(input any, args []any) bool {
	return size(input, maxProduct)*size(args[0], maxProduct) <= maxProduct
}

// affordablePattern reports whether a text can be matched with a regular expression.
func affordablePattern(input any, args []any) bool {
	text, _ := input.(string)
	pattern, ok := args[0].(string)
	if !ok || len(pattern) > maxPattern {
		return !ok // jq says what is wrong
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return true
	}
	compiled, err := syntax.Compile(parsed.Simplify())
	return err != nil || len(text)*len(compiled.Inst) <= maxMatching
}
