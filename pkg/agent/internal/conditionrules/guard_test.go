package conditionrules

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// nested returns [[...[item, item]..., same]]: depth lists that each hold the one below twice, so
// that there are 2^depth items, made in a few steps.
func nested(item string, depth int) string {
	text := "[" + item + "]"
	for range depth {
		text = "[" + text + "].map(x, [x, x])[0]"
	}
	return text
}

// doubled is like nested, but joins the lists into one.
func doubled(item string, depth int) string {
	text := "[" + item + "]"
	for range depth {
		text = "[" + text + "].map(x, x + x)[0]"
	}
	return text
}

// TestWhatCostsTooMuchIsNotDone has expressions of which a single call would need minutes or all
// memory while cel-go counts next to nothing for it beforehand.
func TestWhatCostsTooMuchIsNotDone(t *testing.T) {
	t.Parallel()
	e, live := evaluator(t), object(t, widget)
	live.Object["long"] = strings.Repeat("a", 1_000_000)
	live.Object["longer"] = strings.Repeat("a", 500_000) + "b"
	live.Object["words"] = strings.Fields(strings.Repeat("word ", 20))
	for name, expression := range map[string]string{
		"replace grows":          `object.long.replace("", object.long).size() > 0`,
		"replace some":           `object.long.replace("a", object.long, 10000).size() > 0`,
		"join":                   doubled("object.long", 16) + `.join().size() > 0`,
		"join with":              `object.long.split("").join(object.long).size() > 0`,
		"format":                 `("%s".format(["%s"]) + "%s").format([` + nested("object.long", 16) + `, 1]).size() > 0`,
		"format digits":          `"` + strings.Repeat("%.1000000f", 100) + `".format([` + strings.TrimSuffix(strings.Repeat("1.0,", 100), ",") + `]).size() > 0`,
		"equal":                  nested("1", 25) + " == " + nested("1", 25),
		"not equal":              nested("1", 25) + " != " + nested("1", 25),
		"equal in a map":         `{"a": ` + nested("1", 25) + `} == {"a": ` + nested("1", 25) + `}`,
		"in":                     "2 in " + doubled("1", 25),
		"sum":                    doubled("1", 25) + ".sum() > 0",
		"min":                    doubled("1", 25) + ".min() > 0",
		"max":                    doubled("1", 25) + ".max() > 0",
		"isSorted":               doubled("1", 25) + ".isSorted()",
		"index in a list":        doubled("1", 25) + ".indexOf(2) > 0",
		"last index in a list":   doubled("1", 25) + ".lastIndexOf(2) > 0",
		"index in a text":        `object.long.indexOf(object.longer) > 0`,
		"last index in a text":   `object.long.lastIndexOf("b" + object.longer) > 0`,
		"matches":                `object.long.matches(object.longer)`,
		"matches, as a function": `matches(object.long, object.longer)`,
		"matches a constant":     `object.long.matches("` + strings.Repeat("(a?b?)", 1000) + `")`,
		"finds a constant":       `object.long.find("` + strings.Repeat("(a?b?)", 1000) + `") == ""`,
		"finds all, constant":    `object.long.findAll("` + strings.Repeat("(a?b?)", 1000) + `", 3) == []`,
		"finds":                  `object.long.find(object.longer) == ""`,
		"reads again and again":  `object.long.split("").all(c, object.long.charAt(3) == "a")`,
		"converts again":         `[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, size(object.long) > 0))`,
	} {
		got := e.Evaluate(context.Background(), []workv1.ConditionRule{celRule(expression)}, live)
		if len(got) != 1 || got[0].Message != "operation cancelled: actual cost limit exceeded" {
			t.Errorf("%s: %.300v", name, lines(got))
		}
	}
}

// TestGuardChangesNoResult compares, by what cel-go itself says, calls that the guard replaces,
// also where they fail.
func TestGuardChangesNoResult(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	bare, err := newPrograms(10)
	if err != nil {
		t.Fatal(err)
	}
	bare.guard = &guard{} // knows no implementation, so that it replaces nothing
	left := []string{`"abc"`, `""`, `1`, `["a", "b"]`, `{"a": 1}`, `optional.of(1)`, `object.text`, `object.list`, `object.map`,
		`object.missing`, `timestamp("2026-01-02T03:04:05Z")`}
	right := []string{`"a"`, `1`, `[1, 2]`, `[]`, `optional.of(1)`, `object.text`, `object.list`, `object.missing`}
	variables := map[string]any{"object": map[string]any{"text": "abc", "list": []any{"a", int64(1)}, "map": map[string]any{"a": "b"}}}
	answer := func(p *program) string {
		if p.err != nil {
			return p.err.Error()
		}
		value, _, err := p.run(context.Background(), variables, maxCost)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %v", value.Type().TypeName(), value.Value())
	}
	compared := 0
	compare := func(expression string) {
		of := source{text: expression}
		want, got := answer(bare.get(of)), answer(e.programs.get(of))
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

// TestWhatTakesLongToCompileIsNotCompiled has expressions that cel-go would need minutes for,
// before anything is evaluated.
func TestWhatTakesLongToCompileIsNotCompiled(t *testing.T) {
	t.Parallel()
	e, live := evaluator(t), object(t, widget)
	for name, c := range map[string]struct{ expression, want string }{
		"loops":  {strings.Repeat("[1].filter(x, true).size() == 1 && ", 65) + "true", "it has 65 macros that loop (all, exists, exists_one, filter, map), at most 64 are allowed"},
		"length": {strings.Repeat(" ", 10_000) + "true", "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 10004, limit 10000"},
		"depth":  {strings.Repeat("optional.of(", 65) + "true" + strings.Repeat(")", 65) + ".hasValue()", "ERROR: <input>:-1:0: expression recursion limit exceeded: 64"},
	} {
		got := e.Evaluate(context.Background(), []workv1.ConditionRule{celRule(c.expression)}, live)
		if got[0].Reason != workv1.ReasonConditionRuleExpressionError || !strings.HasPrefix(got[0].Message, c.want) {
			t.Errorf("%s: %.300v", name, lines(got))
		}
	}
	for _, fine := range []string{
		strings.Repeat("[1].filter(x, true).size() == 1 && ", 64) + "true",
		strings.Repeat(" ", 9_990) + "true",
		strings.Repeat("optional.of(", 60) + "true" + strings.Repeat(")", 60) + ".hasValue()",
	} {
		got := e.Evaluate(context.Background(), []workv1.ConditionRule{celRule(fine)}, live)
		if got[0].Status != metav1.ConditionTrue {
			t.Errorf("%.100s: %.300v", fine, lines(got))
		}
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
