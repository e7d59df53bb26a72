package conditionrules

import (
	"context"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestDocumentedRules evaluates the rules that docs/conditions.md shows.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/conditions.md shows no rules")
	}
	var spec workv1.ManifestWorkSpec
	if err := yaml.UnmarshalStrict(block[1], &spec); err != nil {
		t.Fatal(err)
	}
	rules := spec.ManifestConfigs[0].ConditionRules
	if err := Validate(rules); err != nil {
		t.Error(err)
	}
	for job, want := range map[string][]string{
		"{apiVersion: batch/v1, kind: Job, metadata: {name: pi}}": {
			`Complete=False ConditionRuleEvaluated "Job is not finished"`, `Progressing=False ConditionRuleEvaluated "no pod is active"`},
		"{apiVersion: batch/v1, kind: Job, metadata: {name: pi}, status: {active: 2}}": {
			`Complete=False ConditionRuleEvaluated "Job is not finished"`, `Progressing=True ConditionRuleEvaluated "2 pods are active"`},
	} {
		got := evaluator(t).Evaluate(context.Background(), rules, object(t, job))
		if diff := cmp.Diff(want, lines(got)); diff != "" {
			t.Errorf("%s: %s", job, diff)
		}
	}
}
