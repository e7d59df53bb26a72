package strategy_test

import (
	"fmt"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/order"
	"github.com/workwire/workwire/pkg/agent/internal/strategy"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/strategytest"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

func TestParseOrder(t *testing.T) {
	readOnly := strategytest.Configured(&workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly})
	const deployment, job = `"apiVersion":"apps/v1","kind":"Deployment"`, `"apiVersion":"batch/v1","kind":"Job"`
	for name, c := range map[string]struct {
		kind, annotations, rest string
		change                  func(*workv1.ManifestWorkSpec)
		wave                    int
		hook                    string
		err                     string
	}{
		"nothing":            {kind: deployment},
		"a wave":             {kind: deployment, annotations: `"workwire.dev/wave":"12"`, wave: 12},
		"a negative wave":    {kind: deployment, annotations: `"workwire.dev/wave":"-3"`, wave: -3},
		"no number":          {kind: deployment, annotations: `"workwire.dev/wave":"1.5"`, err: `annotation workwire.dev/wave is "1.5": it must be an integer, or absent`},
		"too large":          {kind: deployment, annotations: `"workwire.dev/wave":"3000000000"`, err: `annotation workwire.dev/wave is "3000000000": it must be an integer, or absent`},
		"no number, read":    {kind: deployment, annotations: `"workwire.dev/wave":""`, change: readOnly, err: `annotation workwire.dev/wave is "": it must be an integer, or absent`},
		"a wave, read":       {kind: deployment, annotations: `"workwire.dev/wave":"1"`, change: readOnly, wave: 1},
		"a hook":             {kind: job, annotations: `"workwire.dev/hook":"Before"`, hook: workv1.HookBefore},
		"a hook with a wave": {kind: job, annotations: `"workwire.dev/hook":"After","workwire.dev/wave":"1"`, hook: workv1.HookAfter, wave: 1},
		"an unknown hook":    {kind: job, annotations: `"workwire.dev/hook":"Meanwhile"`, err: `annotation workwire.dev/hook is "Meanwhile": it must be Before, After, or absent`},
		"a hook of no Job":   {kind: deployment, annotations: `"workwire.dev/hook":"After"`, err: "annotation workwire.dev/hook is on a Deployment: a hook must be a Job of group batch"},
		"a hook that goes": {kind: job, annotations: `"workwire.dev/hook":"After"`, rest: `,"spec":{"ttlSecondsAfterFinished":1}`,
			err: "a hook must not have spec.ttlSecondsAfterFinished: its Job tells that it has run, and stays until the next run"},
		"a hook that is read": {kind: job, annotations: `"workwire.dev/hook":"After"`, change: readOnlyJobs, hook: workv1.HookAfter,
			err: "a hook is created by the agent: its update strategy must not be ReadOnly"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strategytest.Spec(fmt.Sprintf(`{%s,"metadata":{"namespace":"ns","name":"d","annotations":{%s}}%s}`, c.kind, c.annotations, c.rest))
			if c.change != nil {
				c.change(spec)
			}
			m := strategy.Parse(nil, spec, strategytest.Mapping)[0]
			if m.Wave != c.wave || m.Hook != c.hook || strategytest.ErrorText(m.Err) != c.err {
				t.Errorf("wave %d, hook %q, error %q", m.Wave, m.Hook, strategytest.ErrorText(m.Err))
			}
			if place := (order.Item{Hook: c.hook, Wave: c.wave}); c.err == "" && strategy.PlaceOf(m.Desired) != place {
				t.Errorf("on the cluster it has the place %v", strategy.PlaceOf(m.Desired))
			}
		})
	}
}

func readOnlyJobs(spec *workv1.ManifestWorkSpec) {
	spec.ManifestConfigs = []workv1.ManifestConfigOption{{
		ResourceIdentifier: workv1.ResourceIdentifier{Group: "batch", Resource: "jobs", Namespace: "*", Name: "*"},
		UpdateStrategy:     &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeReadOnly},
	}}
}
