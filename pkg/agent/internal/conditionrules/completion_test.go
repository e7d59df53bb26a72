package conditionrules

import (
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestComplete: a manifest is complete by its rule and by what was reported, and the whole work if all with a rule are.
func TestCompleted(t *testing.T) {
	rule := []workv1.ConditionRule{{Type: workv1.WellKnownConditionsType, Condition: workv1.ManifestComplete}}
	job := func(name string, rules []workv1.ConditionRule) strategy.Manifest {
		m := strategy.Manifest{ConditionRules: rules}
		m.Meta = workv1.ManifestResourceMeta{Group: "batch", Version: "v1", Kind: "Job", Name: name}
		return m
	}
	for name, c := range map[string]struct {
		manifests []strategy.Manifest
		reported  string // the name of what is complete
		whole     bool
		complete  []bool
	}{
		"all":                 {[]strategy.Manifest{job("a", rule), job("b", nil)}, "a", true, []bool{true, true}},
		"one of two":          {[]strategy.Manifest{job("a", rule), job("c", rule), job("b", nil)}, "a", false, []bool{true, false, false}},
		"the rule is gone":    {[]strategy.Manifest{job("a", nil)}, "a", false, []bool{false}},
		"nothing is reported": {[]strategy.Manifest{job("a", rule)}, "", false, []bool{false}},
	} {
		completion := Completed(c.manifests, func(i int) bool { return c.manifests[i].Meta.Name == c.reported })
		if completion.Work != c.whole {
			t.Errorf("%s: the whole work is complete: %v", name, completion.Work)
		}
		for i := range c.manifests {
			if got := completion.Of(i); got != c.complete[i] {
				t.Errorf("%s: manifest %d is complete: %v", name, i, got)
			}
		}
	}
	if Completed([]strategy.Manifest{job("a", rule)}, func(int) bool { return false }).Work {
		t.Error("a work of which nothing is known is complete")
	}
}
