package expression

import (
	"context"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
)

// Versions lets semver take versions that begin with a v, as those of Kubernetes do, without its second argument.
func Versions() cel.EnvOption {
	return cel.Macros(cel.GlobalMacro("semver", 1, func(factory parser.ExprHelper, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		return factory.NewCall("semver", args[0], factory.NewLiteral(types.True)), nil
	}))
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
