package reconcile

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
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
	work, amw := &inbox.Entry{}, &workv1.AppliedManifestWork{}
	with := func(known *workv1.AppliedManifestWork, spec *inbox.Entry) reconciliation {
		h := &history{spec: spec}
		if spec == nil {
			h.applied = map[object.Ref]*inbox.Entry{} // the work was reconciled, and nothing of it applied
			h.spec = work
		}
		return reconciliation{subject: subject{work: work}, known: known, last: newLastApplied(h, work, []strategy.Manifest{{}}, func(*inbox.Entry) []strategy.Manifest { return nil })}
	}
	applied, changed, waits, none := with(amw, work), with(amw, &inbox.Entry{}), with(amw, nil), with(nil, nil)
	for name, c := range map[string]struct {
		rec       reconciliation
		manifests []manifest
		complete  []bool
		work      bool
	}{
		"no rules":                          {applied, []manifest{{nil, seen(), true}}, []bool{false}, false},
		"a rule for something else":         {applied, []manifest{{other, seen(), true}}, []bool{false}, false},
		"a rule that gives nothing":         {applied, []manifest{{wellKnown, seen(), true}}, []bool{false}, false},
		"complete":                          {applied, []manifest{{rule, seen("True"), false}}, []bool{true}, true},
		"not complete":                      {applied, []manifest{{rule, seen("False"), false}}, []bool{false}, false},
		"turned false":                      {applied, []manifest{{rule, seen("False"), true}}, []bool{false}, false},
		"turned unknown":                    {applied, []manifest{{rule, seen("Unknown"), true}}, []bool{false}, false},
		"cleaned up":                        {applied, []manifest{{rule, gone, true}}, []bool{true}, true},
		"not seen":                          {applied, []manifest{{rule, unknown, true}}, []bool{true}, true},
		"never was":                         {applied, []manifest{{rule, gone, false}}, []bool{false}, false},
		"the rule has gone":                 {applied, []manifest{{nil, gone, true}}, []bool{false}, false},
		"one of two":                        {applied, []manifest{{rule, gone, true}, {rule, seen("False"), false}}, []bool{true, false}, false},
		"both":                              {applied, []manifest{{rule, gone, true}, {rule, seen("True"), false}}, []bool{true, true}, true},
		"those without a rule do not count": {applied, []manifest{{nil, seen(), false}, {rule, seen("True"), false}}, []bool{false, true}, true},
		"another spec, complete":            {changed, []manifest{{rule, seen("True"), false}}, []bool{false}, false},
		"another spec, was complete":        {changed, []manifest{{rule, seen("True"), true}}, []bool{true}, true},
		"another spec, turned false":        {changed, []manifest{{rule, seen("False"), true}}, []bool{false}, false},
		"another spec, cleaned up":          {changed, []manifest{{rule, gone, true}}, []bool{true}, true},
		"waits, complete":                   {waits, []manifest{{rule, seen("True"), false}}, []bool{false}, false},
		"nothing applied, complete":         {none, []manifest{{rule, seen("True"), true}}, []bool{false}, false},
		"nothing applied, cleaned up":       {none, []manifest{{rule, gone, true}}, []bool{true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			rec := c.rec
			var before []bool
			for i, m := range c.manifests {
				rec.manifests = append(rec.manifests, strategy.Manifest{
					Meta:           workv1.ManifestResourceMeta{Ordinal: int32(i), Version: "v1", Kind: "ConfigMap"},
					ConditionRules: m.rules,
				})
				rec.observed, before = append(rec.observed, m.observed), append(before, m.was)
			}
			got := rec.completed(func(meta workv1.ManifestResourceMeta) bool { return before[meta.Ordinal] })
			if !slices.Equal(got.Manifests, c.complete) || got.Work != c.work {
				t.Errorf("got %+v, want %v and %v", got, c.complete, c.work)
			}
		})
	}
}
