package reconcile

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestCompleted(t *testing.T) {
	rule := []workv1.ConditionRule{{Condition: workv1.ManifestComplete, Type: workv1.CelConditionExpressionsType}}
	other := []workv1.ConditionRule{{Condition: "Initialized", Type: workv1.CelConditionExpressionsType}}
	wellKnown := []workv1.ConditionRule{{Condition: workv1.ManifestComplete, Type: workv1.WellKnownConditionsType}}
	seen := func(conditions ...string) observed {
		s := observed{live: object.Live{State: object.Present, Object: &unstructured.Unstructured{}}}
		for _, status := range conditions {
			s.conditions = append(s.conditions, metav1.Condition{Type: workv1.ManifestComplete, Status: metav1.ConditionStatus(status)})
		}
		return s
	}
	gone, unknown := observed{live: object.Live{State: object.Absent}}, observed{}
	type manifest struct {
		rules    []workv1.ConditionRule
		observed observed
		was      bool
	}
	for name, c := range map[string]struct {
		manifests []manifest
		complete  []bool
		work      bool
	}{
		"no rules":                          {[]manifest{{nil, seen(), true}}, []bool{false}, false},
		"a rule for something else":         {[]manifest{{other, seen(), true}}, []bool{false}, false},
		"a rule that gives nothing":         {[]manifest{{wellKnown, seen(), true}}, []bool{false}, false},
		"complete":                          {[]manifest{{rule, seen("True"), false}}, []bool{true}, true},
		"not complete":                      {[]manifest{{rule, seen("False"), false}}, []bool{false}, false},
		"turned false":                      {[]manifest{{rule, seen("False"), true}}, []bool{false}, false},
		"turned unknown":                    {[]manifest{{rule, seen("Unknown"), true}}, []bool{false}, false},
		"cleaned up":                        {[]manifest{{rule, gone, true}}, []bool{true}, true},
		"not seen":                          {[]manifest{{rule, unknown, true}}, []bool{true}, true},
		"never was":                         {[]manifest{{rule, gone, false}}, []bool{false}, false},
		"the rule has gone":                 {[]manifest{{nil, gone, true}}, []bool{false}, false},
		"one of two":                        {[]manifest{{rule, gone, true}, {rule, seen("False"), false}}, []bool{true, false}, false},
		"both":                              {[]manifest{{rule, gone, true}, {rule, seen("True"), false}}, []bool{true, true}, true},
		"those without a rule do not count": {[]manifest{{nil, seen(), false}, {rule, seen("True"), false}}, []bool{false, true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var manifests []strategy.Manifest
			var all []observed
			var before []bool
			for i, m := range c.manifests {
				manifests = append(manifests, strategy.Manifest{
					Meta:           workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap"},
					ConditionRules: m.rules,
				})
				all, before = append(all, m.observed), append(before, m.was)
			}
			got := completed(manifests, all, func(meta workv1.ManifestResourceMeta) bool { return before[meta.Ordinal] })
			if !slices.Equal(got.Manifests, c.complete) || got.Work != c.work {
				t.Errorf("got %+v, want %v and %v", got, c.complete, c.work)
			}
		})
	}
}
