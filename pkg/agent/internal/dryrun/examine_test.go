package dryrun

import (
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestComplete: a manifest is complete by its rule and by what was reported, and the whole work if all with a rule are.
func TestComplete(t *testing.T) {
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
		e := &examination{manifests: c.manifests, complete: func(m workv1.ManifestResourceMeta) bool { return m.Name == c.reported }}
		if e.whole = e.isWhole(); e.whole != c.whole {
			t.Errorf("%s: the whole work is complete: %v", name, e.whole)
		}
		for i := range c.manifests {
			if got := e.isComplete(&e.manifests[i]); got != c.complete[i] {
				t.Errorf("%s: manifest %d is complete: %v", name, i, got)
			}
		}
	}
	if e := (&examination{manifests: []strategy.Manifest{job("a", rule)}}); e.isWhole() {
		t.Error("a work that is not held is complete")
	}
}
