package conditionrules

import (
	"context"
	"strings"
	"testing"

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
