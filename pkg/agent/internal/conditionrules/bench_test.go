package conditionrules

import (
	"context"
	"testing"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func BenchmarkEvaluate(b *testing.B) {
	e := evaluator(b)
	live := object(b, widget)
	for name, rules := range map[string][]workv1.ConditionRule{
		"cel": {with(celRule(`object.status.conditions.exists(c, c.type == 'Complete' && c.status == 'True')`), "",
			`result ? "Custom resource is complete" : "Custom resource is not complete"`)},
		"counts": {celRule(`object.status.ready == object.spec.replicas`)},
		"known":  {{Condition: "Complete", Type: workv1.WellKnownConditionsType}},
	} {
		b.Run(name, func(b *testing.B) {
			obj := live.DeepCopy()
			if name == "known" {
				obj.SetAPIVersion("batch/v1")
				obj.SetKind("Job")
			}
			b.ReportAllocs()
			for b.Loop() {
				e.Evaluate(context.Background(), rules, obj)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	e := evaluator(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.programs.expressions.Compile(`object.status.conditions.exists(c, c.type == 'Complete' && c.status == 'True')`); err != nil {
			b.Fatal(err)
		}
	}
}
