package agentbench

import (
	"context"
	"fmt"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
	"github.com/workwire/workwire/test/bench/events"
	"github.com/workwire/workwire/test/bench/report"
)

// deployment has no pods, so that the cluster writes its status alone: it is ready a moment after it was created.
const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"namespace":%q},"spec":{"replicas":0,"selector":{"matchLabels":{"app":%[1]q}},` +
	`"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"app","image":"app:v1"}]}}}}`

// readiness creates works of a Deployment, of which nobody watches the readiness, and then some of which the agent does.
func (w *world) readiness(ctx context.Context, run int) error {
	type figures struct{ memory, requests, statuses, bytes float64 }
	measured := map[string]figures{}
	ready := func(s *wire.Status) bool { return events.Applied(1)(s) && workstate.ReportsReady(s.Status.Conditions) }
	for _, watched := range []string{"false", "true"} {
		met := events.Applied(1)
		if watched == "true" {
			met = ready
		}
		if err := w.begin(ctx); err != nil {
			return err
		}
		specs := make([]*wire.Spec, w.Works)
		for i := range specs {
			name := fmt.Sprintf("ready-%d", i)
			specs[i] = w.maker.Work(name, &wire.Bundle{}, fmt.Sprintf(deployment, name, namespace))
			specs[i].Meta.Annotations = map[string]string{workv1.ReportReadinessAnnotationKey: watched}
		}
		created, err := w.load(ctx, run, "readiness watched: "+watched, specs, met)
		if err != nil {
			return err
		}
		used, err := w.memory(ctx)
		if err != nil {
			return err
		}
		w.ProfileMemory(ctx, run, "agent-readiness-"+watched)
		each := func(n int) float64 { return float64(n) / float64(w.Works) }
		spent := created.spent
		measured[watched] = figures{float64(used.RSS) / 1e6, each(spent.Requests.Others), each(spent.events.Statuses), each(spent.events.Data)}
		if err := w.end(ctx, specs); err != nil {
			return err
		}
	}
	on, off := measured["true"], measured["false"]
	w.Board.Add(readyMemory, report.Sample{Measured: on.memory, Baseline: off.memory})
	w.Board.Add(readyRequests, report.Sample{Measured: on.requests, Baseline: off.requests})
	w.Board.Add(readyStatuses, report.Sample{Measured: on.statuses, Baseline: off.statuses})
	w.Board.Add(readyBytes, report.Sample{Measured: on.bytes, Baseline: off.bytes})
	return nil
}
