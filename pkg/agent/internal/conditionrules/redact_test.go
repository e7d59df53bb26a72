package conditionrules

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

const password = "hunter2 of-the.Test"

// TestErrorsWithoutValues evaluates expressions that fail over a password: the condition says how,
// and nothing of the password.
func TestErrorsWithoutValues(t *testing.T) {
	e := evaluator(t)
	for expression, want := range map[string]string{
		`int(object.data.p) == 1`:                      `type conversion error from 'string' to 'int'`,
		`double(object.data.p) == 1.0`:                 `type conversion error from 'string' to 'double'`,
		`bool(object.data.p)`:                          `type conversion error from 'string' to 'bool'`,
		`timestamp(object.data.p) == timestamp(0)`:     `type conversion error from 'string' to 'google.protobuf.Timestamp'`,
		`duration(object.data.p) == duration("1s")`:    `type conversion error from 'string' to 'google.protobuf.Duration'`,
		`object.data[object.data.p] == ""`:             `no such key: …`,
		`object.data.zz == ""`:                         `no such key: zz`,
		`[?object.data.p] == []`:                       `cannot initialize optional list element from non-optional value …`,
		`{?"a": object.data.p} == {}`:                  `cannot initialize optional entry 'a' from non-optional value …`,
		`ip(object.data.p) == ip("::1")`:               `IP Address "…" parse error during conversion from string: ParseAddr("…"): unexpected character (at "…")`,
		`cidr(object.data.p) == cidr("::1/1")`:         `network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix("…"): no '…'`,
		`url("://" + object.data.p) == url("/")`:       `URL parse error during conversion from string: parse "…": missing …`,
		`quantity(object.data.p) == quantity("1")`:     `quantities must match the regular expression '…'`,
		`semver(object.data.p) == semver("1.0.0")`:     ``,
		`"a".matches("(" + object.data.p)`:             "error parsing regexp: missing closing ): `…`",
		`"a".find(object.data.p + "(") == ""`:          ``,
		`"%d".format([object.data.p]) == ""`:           ``,
		`"%s".format([]) == object.data.p`:             ``,
		`object.data.p < 1`:                            `no such overload`,
		`[1][object.data.pin] == 1`:                    `index out of bounds: …`,
		`dyn([1])[object.data.p] == 1`:                 ``,
		`1 / (object.data.pin - object.data.pin) == 1`: `division by zero`,
		`object.data.p.charAt(99) == ""`:               `index out of range: 99`,
		`object.data.p.substring(99) == ""`:            `index out of range: 99`,
	} {
		live := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret",
			"data": map[string]any{"p": password, "pin": int64(7351)}}}
		rule := workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: "C", CelExpressions: []string{expression}}
		inMessage := workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: "M",
			MessageExpression: "string(" + expression + ")"}
		conditions := e.Evaluate(t.Context(), []workv1.ConditionRule{rule, inMessage}, live)
		for _, c := range conditions {
			if c.Type == "C" && c.Reason != workv1.ReasonConditionRuleExpressionError {
				t.Errorf("%s: %s %s, want an error", expression, c.Reason, c.Message)
			}
			if c.Message != want && want != "" {
				t.Errorf("%s: the message is\n%s, want\n%s", expression, c.Message, want)
			}
			for _, part := range []string{"hunter2", "of-the", "Test", "7351"} {
				if strings.Contains(c.Message, part) {
					t.Errorf("%s: the message has the password: %s", expression, c.Message)
				}
			}
		}
	}
}
