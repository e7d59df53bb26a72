package expression

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// cel-go counts the cost of a call after it is done, and the cost of some calls hardly at all. A
// single call could therefore use all memory, or run for a minute without a check of the context:
// replace turns a short text into a long one, repeated + doubles a list, == visits nested lists
// that share their items, indexOf compares at every position. The guard estimates such calls before
// they are made, and ends the evaluation if one call would exceed the limit of an expression.

// guarded lists the functions whose cost is estimated before they are called.
var guarded = map[string]bool{
	operators.Equals: true, operators.NotEquals: true, operators.In: true, operators.Add: true,
	"replace": true, "join": true, "format": true,
	"matches": true, "find": true, "findAll": true,
	"indexOf": true, "lastIndexOf": true,
	"sum": true, "min": true, "max": true, "isSorted": true,
}

// maxPrecision is the maximum precision that Go's fmt supports.
const maxPrecision = 1_000_000

// overlooked lists functions that read a whole text and that the libraries count as constant.
var overlooked = map[string]bool{
	"charAt": true, "reverse": true, "size": true, "parseJSON": true,
	"int": true, "uint": true, "double": true, "bool": true, "duration": true, "timestamp": true,
}

// guard guards the calls of programs. It is immutable.
type guard struct {
	limit           uint64                         // of the cost of an expression
	implementations map[string]*functions.Overload // by overload and by function
}

func newGuard(env *cel.Env, limit uint64) (*guard, error) {
	g := &guard{limit: limit, implementations: map[string]*functions.Overload{}}
	for name, declared := range env.Functions() {
		if !guarded[name] {
			continue
		}
		bindings, err := declared.Bindings()
		if err != nil {
			return nil, err
		}
		for _, overload := range bindings {
			g.implementations[overload.Operator] = overload
		}
	}
	for _, name := range []string{operators.Add, overloads.AddList} {
		if add := g.implementations[name]; add != nil {
			g.implementations[name] = &functions.Overload{Binary: addition(env.CELTypeAdapter(), add.Binary), OperandTrait: add.OperandTrait}
		}
	}
	// cel-go plans these two itself.
	g.implementations[operators.Equals] = &functions.Overload{Binary: types.Equal}
	g.implementations[operators.NotEquals] = &functions.Overload{Binary: func(a, b ref.Val) ref.Val {
		return types.Bool(types.Equal(a, b) != types.True)
	}}
	return g, nil
}

// decorate replaces a call of a guarded function by one that estimates its cost first, and meters
// other nodes.
func (g *guard) decorate(node interpreter.Interpretable) (interpreter.Interpretable, error) {
	call, ok := node.(interpreter.InterpretableCall)
	if !ok || !guarded[call.Function()] {
		return metered(node), nil
	}
	name, args := call.Function(), call.Args()
	implementation := g.implementations[call.OverloadID()]
	if implementation == nil {
		implementation = g.implementations[name]
	}
	if implementation == nil || (name == operators.Equals || name == operators.NotEquals) && (plain(args[0]) || plain(args[1])) {
		return node, nil
	}
	if pattern, isConst := regularExpression(name, args); isConst {
		// cel-go compiles the pattern once and calls another function with these arguments.
		args = slices.Clone(args)
		args[0] = &matched{Interpretable: args[0], guard: g, function: name, pattern: pattern}
	}
	return interpreter.NewCall(call.ID(), name, call.OverloadID(), args, func(values ...ref.Val) ref.Val {
		g.refuseAboveLimit(name, values)
		return invoke(implementation, call, values)
	}), nil
}

// refuseAboveLimit ends the evaluation if one call costs more than an expression may.
func (g *guard) refuseAboveLimit(function string, args []ref.Val) {
	if estimate(function, args) > g.limit {
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded,
			Message: "operation cancelled: actual cost limit exceeded"})
	}
}

// plain reports whether an argument is a constant other than a list or map, so that a comparison
// with it is cheap.
func plain(arg interpreter.Interpretable) bool {
	constant, ok := arg.(interpreter.InterpretableConst)
	return ok && types.IsPrimitiveType(constant.Value())
}

func regularExpression(function string, args []interpreter.Interpretable) (ref.Val, bool) {
	if len(args) < 2 || function != "matches" && function != "find" && function != "findAll" {
		return nil, false
	}
	constant, ok := args[1].(interpreter.InterpretableConst)
	if !ok {
		return nil, false
	}
	return constant.Value(), true
}

// matched is the text argument of a call with a constant pattern.
type matched struct {
	interpreter.Interpretable
	guard    *guard
	function string
	pattern  ref.Val
}

func (m *matched) Eval(variables interpreter.Activation) ref.Val {
	text := m.Interpretable.Eval(variables)
	m.guard.refuseAboveLimit(m.function, []ref.Val{text, m.pattern})
	return text
}

// addition returns an operator that copies the lists that it concatenates. cel-go instead keeps a
// tree of the operands and visits it whenever it needs the size.
func addition(adapter types.Adapter, add functions.BinaryOp) functions.BinaryOp {
	return func(a, b ref.Val) ref.Val {
		_, growing := a.(traits.MutableLister) // the result of a loop, appended in place
		left, isList := a.(traits.Lister)
		right, areLists := b.(traits.Lister)
		if growing || !isList || !areLists {
			return add(a, b)
		}
		items := make([]ref.Val, 0, size(left)+size(right))
		for _, list := range []traits.Lister{left, right} {
			for each := list.Iterator(); each.HasNext() == types.True; {
				items = append(items, each.Next())
			}
		}
		return types.NewRefValList(adapter, items)
	}
}

// invoke calls implementation as cel-go does.
func invoke(implementation *functions.Overload, call interpreter.InterpretableCall, args []ref.Val) ref.Val {
	kind := args[0].Type()
	switch trait := implementation.OperandTrait; {
	case trait != 0 && !kind.HasTrait(trait):
		if kind.HasTrait(traits.ReceiverType) {
			return args[0].(traits.Receiver).Receive(call.Function(), call.OverloadID(), args[1:])
		}
	case len(args) == 1 && implementation.Unary != nil:
		return implementation.Unary(args[0])
	case len(args) == 2 && implementation.Binary != nil:
		return implementation.Binary(args[0], args[1])
	case implementation.Function != nil:
		return implementation.Function(args...)
	}
	return types.NewErr("no such overload: %s", call.Function())
}

// estimate returns the estimated cost of a call in the units of cel-go: about one per ten bytes of
// text or per item of a list. It visits no more than needed to exceed the limit.
func estimate(function string, args []ref.Val) uint64 {
	switch function {
	case operators.Equals, operators.NotEquals:
		return min(weight(args[0]), weight(args[1]))
	case operators.Add:
		if _, growing := args[0].(traits.MutableLister); !growing && length(args[0]) == 0 {
			return 1 + size(args[0]) + size(args[1])
		}
	case operators.In:
		if list, ok := args[1].(traits.Lister); ok {
			return weight(list)
		}
	case "sum", "min", "max", "isSorted":
		return weight(args[0])
	case "matches", "find", "findAll":
		return (1 + length(args[0])/10) * (1 + length(args[1])/4)
	case "indexOf", "lastIndexOf":
		if list, ok := args[0].(traits.Lister); ok {
			return weight(list)
		}
		// Comparing two letters is much cheaper than one unit.
		return length(args[0])/10 + length(args[0])*length(args[1])/100
	case "replace":
		return length(args[0])/10 + replaced(args)/10
	case "join":
		separators := uint64(0)
		if len(args) > 1 {
			separators = length(args[1]) * size(args[0]) / 10
		}
		return weight(args[0]) + separators
	case "format":
		return length(args[0])/10 + padding(args[0]) + weight(args[1])
	}
	total := uint64(1)
	for _, arg := range args {
		total += length(arg) / 10
	}
	return total
}

// length returns the length of a text in bytes, or 0 if the value is not a text.
func length(value ref.Val) uint64 {
	switch text := value.(type) {
	case types.String:
		return uint64(len(text))
	case types.Bytes:
		return uint64(len(text))
	}
	return 0
}

func size(value ref.Val) uint64 {
	if sized, ok := value.(traits.Sizer); ok {
		if n, ok := sized.Size().(types.Int); ok && n > 0 {
			return uint64(n)
		}
	}
	return 0
}

// replaced returns the length of the result of replace.
func replaced(args []ref.Val) uint64 {
	text, _ := args[0].(types.String)
	old, _ := args[1].(types.String)
	times := uint64(strings.Count(string(text), string(old)))
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			times = min(times, uint64(most))
		}
	}
	return uint64(len(text)) - times*uint64(len(old)) + times*length(args[2])
}

// padding returns the maximum cost that precisions add to a formatted text: "%.1000f" has a
// thousand digits.
func padding(format ref.Val) uint64 {
	text, _ := format.(types.String)
	total := uint64(0)
	for _, clause := range strings.Split(string(text), "%.")[1:] {
		digits := uint64(0)
		for i := 0; i < len(clause) && clause[i] >= '0' && clause[i] <= '9'; i++ {
			digits = min(digits*10+uint64(clause[i]-'0'), maxPrecision)
		}
		total += digits / 10
	}
	return total
}

// weight returns the cost of visiting a value including nested lists and maps. It stops counting
// soon after MaxCost.
func weight(value ref.Val) uint64 {
	return weigh(value, MaxCost+1)
}

func weigh(value ref.Val, limit uint64) uint64 {
	total := 1 + length(value)/10
	switch v := value.(type) {
	case *types.Optional:
		if v.HasValue() {
			total += weigh(v.GetValue(), limit)
		}
	case traits.Lister:
		for items := v.Iterator(); total < limit && items.HasNext() == types.True; {
			total += weigh(items.Next(), limit-total)
		}
	case traits.Mapper:
		for keys := v.Iterator(); total < limit && keys.HasNext() == types.True; {
			key := keys.Next()
			total += weigh(key, limit-total)
			if item, ok := v.Find(key); ok && total < limit {
				total += weigh(item, limit-total)
			}
		}
	}
	return total
}

// estimator counts calls like cel-go and the Kubernetes libraries, but no less than estimate plus
// the size of the result.
type estimator struct {
	interpreter.ActualCostEstimator
}

// CallCost implements interpreter.ActualCostEstimator. For nil, cel-go counts itself.
func (e estimator) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	counted := e.ActualCostEstimator.CallCost(function, overload, args, result)
	if !guarded[function] && !overlooked[function] {
		return counted
	}
	least := estimate(function, args) + length(result)/10
	if counted != nil {
		least = max(least, *counted)
	}
	return &least
}
