package expression

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// TestGuardChangesNoResult compares, by what cel-go itself says, calls that the guard replaces,
// also where they fail.
func TestGuardChangesNoResult(t *testing.T) {
	t.Parallel()
	compiler := func() *Compiler {
		c, err := New(MaxCost, cel.Variable("object", cel.DynType))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	guarded, bare := compiler(), compiler()
	bare.guard = &guard{limit: MaxCost} // knows no implementation, so that it replaces nothing
	left := []string{`"abc"`, `""`, `1`, `["a", "b"]`, `{"a": 1}`, `optional.of(1)`, `object.text`, `object.list`, `object.map`,
		`object.missing`, `timestamp("2026-01-02T03:04:05Z")`}
	right := []string{`"a"`, `1`, `[1, 2]`, `[]`, `optional.of(1)`, `object.text`, `object.list`, `object.missing`}
	variables := map[string]any{"object": map[string]any{"text": "abc", "list": []any{"a", int64(1)}, "map": map[string]any{"a": "b"}}}
	answer := func(c *Compiler, expression string) string {
		p, err := c.Compile(expression)
		if err != nil {
			return err.Error()
		}
		value, _, err := p.Run(t.Context(), variables, MaxCost)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
	}
	compared := 0
	compare := func(expression string) {
		want, got := answer(bare, expression), answer(guarded, expression)
		if want != got {
			t.Errorf("%s: cel-go says %s, ours %s", expression, want, got)
		}
		if !strings.HasPrefix(got, "ERROR") {
			compared++
		}
	}
	for _, a := range left {
		for _, b := range right {
			for _, operator := range []string{"==", "!=", "in", "+"} {
				compare("dyn(" + a + ") " + operator + " dyn(" + b + ")")
			}
			for _, method := range []string{"matches", "find", "findAll", "indexOf", "lastIndexOf", "join", "format"} {
				compare("dyn(" + a + ")." + method + "(dyn(" + b + "))")
			}
			compare("dyn(" + a + ").replace(dyn(" + b + `), "x")`)
			compare(`"abc".replace("a", dyn(` + a + "), dyn(" + b + "))")
			compare("matches(dyn(" + a + "), dyn(" + b + "))")
		}
		for _, method := range []string{"sum", "min", "max", "isSorted", "join"} {
			compare("dyn(" + a + ")." + method + "()")
		}
	}
	for _, typed := range []string{`[1, 2] + [3]`, `"a" + "b"`, `1 + 2`, `b"a" + b"b"`, `"abc".find("[b-z]+")`, `"abc".findAll("[a-z]")`, `"abc".matches("b")`,
		`object.text.matches("b")`, `object.list.matches("b")`, `object.list.find("b")`, `1 in [1, 2]`, `[1, 2].map(x, x + 1) + [4]`, `[1, 2].filter(x, x + 1 > 2)`} {
		compare(typed)
	}
	if compared < 500 {
		t.Errorf("only %d expressions compile", compared)
	}
}

func TestPrice(t *testing.T) {
	t.Parallel()
	text := func(n int) ref.Val { return types.String(strings.Repeat("a", n)) }
	list := func(items ...ref.Val) ref.Val { return types.NewRefValList(types.DefaultTypeAdapter, items) }
	for _, c := range []struct {
		function string
		args     []ref.Val
		want     uint64
	}{
		{"_==_", []ref.Val{text(100), text(20)}, 3},
		{"_==_", []ref.Val{list(text(100), list(types.IntOne)), list(text(100), text(100), text(100))}, 14},
		{"_==_", []ref.Val{types.OptionalOf(text(100)), types.OptionalOf(text(100))}, 12},
		{"@in", []ref.Val{text(10), list(text(10), text(20))}, 6},
		{"@in", []ref.Val{text(10), types.NewStringStringMap(types.DefaultTypeAdapter, map[string]string{"a": "b"})}, 2},
		{"replace", []ref.Val{text(100), text(1), text(50)}, 10 + 500},
		{"replace", []ref.Val{text(100), text(1), text(51), types.Int(10)}, 10 + 60},
		{"replace", []ref.Val{text(9), text(0), text(10)}, 10},
		{"replace", []ref.Val{types.IntOne, types.IntOne, types.IntOne}, 0},
		{"join", []ref.Val{list(text(100), text(100)), text(50)}, 1 + 11 + 11 + 10},
		{"format", []ref.Val{types.String("%.100f .100 %s v1.20260101"), list(text(100))}, 2 + 10 + 12},
		{"format", []ref.Val{types.String("%.99999999999999999999e"), list()}, 2 + maxPrecision/10 + 1},
		{"matches", []ref.Val{text(100), text(8)}, 33},
		{"indexOf", []ref.Val{text(1000), text(100)}, 100 + 1000},
		{"indexOf", []ref.Val{list(types.IntOne, types.IntOne), types.IntOne}, 3},
		{"size", []ref.Val{text(100)}, 11},
		{"size", []ref.Val{list(text(100))}, 1},
	} {
		if got := estimate(c.function, c.args); got != c.want {
			t.Errorf("%s of %v is %d, not %d", c.function, c.args, got, c.want)
		}
	}
}
