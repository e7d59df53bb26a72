package reconcile

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// reconcileTraced is reconcileWork within a span, if the spec of work continues a trace. Reconciles
// after the first one that succeeds are not part of it.
func (r *Reconciler) reconcileTraced(ctx context.Context, s subject) (time.Duration, error) {
	change := r.changeOf(s.work)
	ctx, span := r.Tracer.Attempt(ctx, change, "reconcile ManifestWork", tracing.Work{
		Name: s.work.Meta.Name, UID: string(s.work.UID), Source: string(s.work.Source), Cluster: string(s.work.Cluster), Generation: int64(s.work.Generation),
	})
	after, err := r.reconcileWork(ctx, s)
	span.End(tracing.FailedIf(err))
	if change != nil && err == nil && !s.entry.history.expressions.waits && (s.work.Deleting == nil || r.Outbox.Final(s.work.Key)) {
		r.Changes.Done(s.work.Key, change)
	}
	return after, err
}

// changeOf returns the change that the spec of work brought, nil if there is none, or if a newer spec
// has arrived.
func (r *Reconciler) changeOf(work *inbox.Entry) *tracing.Change {
	change := r.Changes.Get(work.Key)
	if change == nil || change.Generation != int64(work.Generation) {
		return nil
	}
	return change
}

// cause returns the context of the reconcile that sets a status of work.
func (r *Reconciler) cause(work *inbox.Entry) trace.SpanContext { return r.changeOf(work).Current() }
