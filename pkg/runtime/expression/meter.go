package expression

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// cel-go counts the cost of an evaluation with a stack of the values that it has seen. A loop leaves
// values there, and every variable, && and ?: in it looks through all of them: 3,000 steps cost
// milliseconds, 300,000 minutes. Neither does a loop end when the context does, if the loop around
// it goes on over errors, as all does. So variables, && and ?: hide from that search, and each
// variable that is read counts on a meter, which ends the evaluation at once.

// meterName is the name of the meter among the variables. No expression can have it.
const meterName = "#meter"

// meter bounds one evaluation. It is not safe for concurrent use.
type meter struct {
	ctx  context.Context //nolint:containedctx // cel-go passes its own to no variable
	left uint64          // variables that may still be read: each costs 1 or more
	over bool            // none was left
}

// count counts a variable. It ends the evaluation when none is left, or the context has ended.
func (m *meter) count() {
	if m.left == 0 {
		m.over = true
		panic(interpreter.EvalCancelledError{Cause: interpreter.CostLimitExceeded, Message: ErrBudget.Error()})
	}
	m.left--
	if m.left%checkEvery == 0 && m.ctx.Err() != nil {
		panic(interpreter.EvalCancelledError{Cause: interpreter.ContextCancelled, Message: "operation interrupted"})
	}
}

// metered replaces the nodes that cel-go looks through its stack for.
func metered(node interpreter.Interpretable) interpreter.Interpretable {
	kind := fmt.Sprintf("%T", node)
	if strings.HasPrefix(kind, "*interpreter.evalWatch") { // it is planned, and goes by here again
		return node
	}
	switch attribute, ok := node.(interpreter.InterpretableAttribute); {
	case ok && fmt.Sprintf("%T", attribute.Attr()) == "*interpreter.conditionalAttribute":
		return plainNode{node}
	case ok:
		return &variable{attribute}
	case kind == "*interpreter.evalAnd", kind == "*interpreter.evalOr":
		return plainNode{node}
	}
	return node
}

// plainNode is a node that costs nothing.
type plainNode struct{ interpreter.Interpretable }

// variable is a variable or field, which costs 1 and counts on the meter. cel-go takes it for a
// qualifier, whose cost is the same, and which is not searched.
type variable struct {
	interpreter.InterpretableAttribute
}

// Value makes it an [interpreter.ConstantQualifier].
func (v *variable) Value() ref.Val { return types.NullValue }

func (v *variable) Eval(variables interpreter.Activation) ref.Val {
	if found, ok := variables.ResolveName(meterName); ok {
		found.(*meter).count()
	}
	return v.InterpretableAttribute.Eval(variables)
}

var _ interpreter.ConstantQualifier = (*variable)(nil)
