package plan_test

import (
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/plan"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestFieldsDigest: the first letter is the strategy, and what an update did not get stored counts.
func TestFieldsDigest(t *testing.T) {
	const text = deploymentHead + `"spec":{"a":1}}`
	configMap := func(change ...func(*workv1.ManifestWorkSpec)) *strategy.Manifest {
		return strategytest.Manifest(t, strategytest.ConfigMap("c", `,"data":{"k":"v"}`), change...)
	}
	update, serverSide := strategytest.Manifest(t, text), configMap(strategytest.Configured(strategytest.ServerSide(nil)))
	for name, test := range map[string]struct {
		m      *strategy.Manifest
		live   string // content
		want   string // how it begins
		undone bool
	}{
		"update":                   {m: update, live: `"spec":{"a":1,"b":2}`, want: "U"},
		"update, stored otherwise": {m: update, live: `"spec":{"a":2}`, want: "U", undone: true},
		"server side":              {m: serverSide, live: `"data":{"k":"w"}`, want: "A"},
		"ignoring": {
			m: configMap(strategytest.IgnoreFields(strategytest.OnPresent(".data"))), live: `"data":{"k":"w"}`, want: "A",
		},
		"create only": {
			m: configMap(strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeCreateOnly})), live: `"data":{"k":"w"}`, want: "C",
		},
	} {
		t.Run(name, func(t *testing.T) {
			live := applied(t, test.m, test.live)
			s := situation(live, nil)
			got := plan.FieldsDigest(test.m, live)
			if !strings.HasPrefix(got, test.want) || strings.Contains(got, "-") != test.undone {
				t.Errorf("got %q", got)
			}
			if kept := plan.KeptDigest(test.m, s); kept != got {
				t.Errorf("of an object that was not written: %q, want %q", kept, got)
			}
			// What was recorded of the same fields is kept, although the object would give another now.
			declared, _, _ := strings.Cut(got, "-")
			s.FieldsDigest = "U0," + declared + "-recorded"
			if kept := plan.KeptDigest(test.m, s); kept != declared+"-recorded" {
				t.Errorf("%q is kept of %q", kept, s.FieldsDigest)
			}
		})
	}
}

// TestFormerWrites: what was last written to an object follows from the previous manifest, else from the
// digest.
func TestFormerWrites(t *testing.T) {
	const text = deploymentHead + `"spec":{"a":1}}`
	m := strategytest.Manifest(t, text)
	readOnly := strategytest.Manifest(t, text)
	readOnly.Strategy = workv1.UpdateStrategyTypeReadOnly
	serverSide := strategytest.Manifest(t, text)
	serverSide.Strategy = workv1.UpdateStrategyTypeServerSideApply
	byOther := strategytest.Manifest(t, text)
	byOther.FieldManager = "other"
	former, serverSideOther := *serverSide, *serverSide
	former.Hash, serverSideOther.FieldManager = "other", "other"
	for name, test := range map[string]struct {
		m, previous *strategy.Manifest
		digest      string
		want        plan.Verb
	}{
		"the same":                                            {m: m, previous: m, want: plan.Keep},
		"another strategy, by digest":                         {m: m, previous: readOnly, digest: digest(m), want: plan.Update},
		"another strategy":                                    {m: m, previous: serverSide, want: plan.Update},
		"another manager":                                     {m: m, previous: byOther, want: plan.Update},
		"apply, the same":                                     {m: serverSide, previous: serverSide, want: plan.Keep},
		"apply, another manager, not recorded":                {m: serverSide, previous: &serverSideOther, want: plan.Apply},
		"apply, another manager, recorded":                    {m: serverSide, previous: &serverSideOther, digest: digest(serverSide), want: plan.Keep},
		"apply, another value":                                {m: serverSide, previous: &former, digest: digest(serverSide), want: plan.Apply},
		"apply, after an update":                              {m: serverSide, previous: m, want: plan.Read},
		"apply, after reading only":                           {m: serverSide, previous: readOnly, want: plan.Apply},
		"apply, after reading only and before that an update": {m: serverSide, previous: readOnly, digest: digest(m), want: plan.Read},
		"apply, after an apply, and before that an update":    {m: serverSide, previous: &former, digest: digest(m), want: plan.Apply},
	} {
		t.Run(name, func(t *testing.T) {
			live := applied(t, m, `"spec":{"a":1}`)
			s := situation(live, test.previous)
			s.FieldsDigest = test.digest
			if got := plan.Next(test.m, s); got.Verb != test.want || got.Err != nil {
				t.Errorf("got %s %v %v, want %s", got.Verb, got.Differences, got.Err, test.want)
			}
		})
	}
}

// TestChanged: only a change of what is written counts, and a repair is none.
func TestChanged(t *testing.T) {
	m, other := strategytest.Manifest(t, deploymentHead+`"spec":{"a":1}}`), strategytest.Manifest(t, deploymentHead+`"spec":{"a":2}}`)
	readOnly := *other
	readOnly.Strategy = workv1.UpdateStrategyTypeReadOnly
	for name, test := range map[string]struct {
		m, previous     *strategy.Manifest
		changed, repair bool
	}{
		"not known": {m: m},
		"the same":  {m: m, previous: m, repair: true},
		"changed":   {m: m, previous: other, changed: true},
		"read only": {m: &readOnly, previous: m},
	} {
		step := plan.Step{Verb: plan.Update, Differences: []string{"/spec/a"}}
		s := situation(applied(t, m, ``), test.previous)
		if got := plan.Changed(test.m, test.previous); got != test.changed {
			t.Errorf("%s: changed %t", name, got)
		}
		if got := plan.IsRepair(step, test.m, s); got != test.repair {
			t.Errorf("%s: a repair %t", name, got)
		}
		if plan.IsRepair(plan.Step{Verb: plan.Update}, test.m, s) {
			t.Errorf("%s: without differences it is a repair", name)
		}
	}
}
