package strategy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// TestKeptIgnoreFields: what ignoreFields leave of manifests is the same when it is kept, and when others are over the
// budget of the work.
func TestKeptIgnoreFields(t *testing.T) {
	accounts := budget.New(quota.New[wire.SourceID](quota.Config{Subsystem: "test"}))
	nested := `{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":{"j":1.5,"k":9007199254740993}}}}}}}}}}`
	for name, expression := range map[string]string{
		"cheap": ".data.a", "expensive": "..|..|..|..|..|..|select(. == 1.5)", "invalid": ".data[", "too expensive": "..|..|..|..|..|..|..|..|..|..",
	} {
		spec := strategytest.Spec(strategytest.ConfigMap("a", `,"data":`+nested), strategytest.ConfigMap("b", `,"data":`+nested))
		strategytest.IgnoreFields(workv1.IgnoreField{JQPathExpressions: []string{expression}})(spec)
		var results budget.Results
		type left struct {
			Object any
			Hash   string
			Err    string
			Steps  int
		}
		parse := func(b *budget.Budget) (all []left) {
			for _, m := range strategy.Parse(b, spec, strategytest.Mapping) {
				var l left
				if m.Err != nil {
					l.Err = m.Err.Error()
				} else {
					l.Object, l.Hash = m.Ignored.Rest.Object, m.Ignored.Hash
				}
				all = append(all, l)
			}
			all[0].Steps = b.Left()
			accounts.End(b)
			return all
		}
		b, _ := accounts.BeginTurn("s", &results)
		first := parse(b)
		if results.IsZero() {
			t.Errorf("%s: nothing is kept", name)
		}
		again := parse(accounts.Begin("s", &results))
		if diff := cmp.Diff(first, again); diff != "" {
			t.Errorf("%s: the kept result differs: %s", name, diff)
		}
		accounts.Drop("s", &results)
	}
}
