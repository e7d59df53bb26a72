package expression

import (
	"encoding/json"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"
)

// JSON adds parseJSON, a function and method of texts. It returns the value that the text has as JSON.
func JSON() cel.EnvOption {
	return cel.Function("parseJSON",
		cel.Overload("parse_json", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(parseJSON)),
		cel.MemberOverload("string_parse_json", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(parseJSON)))
}

func parseJSON(text ref.Val) ref.Val {
	var value any
	if err := json.Unmarshal([]byte(text.(types.String)), &value); err != nil {
		return types.NewErr("parseJSON: the text is not JSON")
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// Versions lets semver take versions that begin with a v, as those of Kubernetes do, without its second argument.
func Versions() cel.EnvOption {
	return cel.Macros(cel.GlobalMacro("semver", 1, func(factory parser.ExprHelper, _ ast.Expr, args []ast.Expr) (ast.Expr, *common.Error) {
		return factory.NewCall("semver", args[0], factory.NewLiteral(types.True)), nil
	}))
}
