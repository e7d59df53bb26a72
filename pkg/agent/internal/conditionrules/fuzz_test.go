package conditionrules

import (
	"context"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// FuzzEvaluate checks that no expression and no object makes the evaluator panic, run on, change
// the object or give what is no condition.
func FuzzEvaluate(f *testing.F) {
	for _, seed := range [][3]string{
		{`object.status.conditions.exists(c, c.type == 'Complete' && c.status == 'True')`, `result ? "a" : object.kind`, widgetJSON},
		{`object.spec.list == [1, 2, 3]`, `"%s".format([object.spec])`, widgetJSON},
		{`hasConditions(object.status)`, `string(result)`, widgetJSON},
		{`object.?spec.?zz.orValue(true)`, `object.spec.list.map(x, string(x)).join(",")`, widgetJSON},
		{nested("1", 5) + "==" + nested("1", 5), `"a".replace("", "bb")`, `{"apiVersion":"batch/v1","kind":"Job","status":{"conditions":[1,null,{"type":1}]}}`},
		{`object.a.matches(object.b)`, `quantity("1k")`, `{"apiVersion":"v1","kind":"Pod","a":"(a+)+$","b":"aaaaaaaa!","status":[]}`},
		{``, ``, `{"kind":null,"status":{"phase":null}}`},
	} {
		f.Add(seed[0], seed[1], []byte(seed[2]))
	}
	e := evaluator(f)
	f.Fuzz(func(t *testing.T, expression, message string, data []byte) {
		live := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, &live.Object); err != nil || len(expression)+len(message) > 10_000 {
			return
		}
		before := live.DeepCopy()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		started := time.Now()
		got := e.Evaluate(ctx, WithReadiness([]workv1.ConditionRule{
			with(celRule(expression), "", message),
			{Condition: "Complete", Type: workv1.WellKnownConditionsType, MessageExpression: message},
			{Condition: "C2", Type: workv1.ConditionRuleType(message), Message: expression},
		}, live.GroupVersionKind()), live)
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
		if len(got) < 1 || len(got) > 5 || got[0].Type != "C" {
			t.Errorf("%v", lines(got))
		}
		for _, c := range got {
			if len(c.Message) > condition.MaxMessage || !utf8.ValidString(c.Message) || c.Reason == "" ||
				c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse && c.Status != metav1.ConditionUnknown {
				t.Errorf("%+v", c)
			}
		}
		if diff := cmp.Diff(before.Object, live.Object); diff != "" {
			t.Errorf("the object was changed: %s", diff)
		}
	})
}

const widgetJSON = `{"apiVersion":"example.com/v1","kind":"Widget","spec":{"list":[1,2,3],"ratio":0.5,"nothing":null},
"status":{"conditions":[{"type":"Complete","status":"True"}]}}`
