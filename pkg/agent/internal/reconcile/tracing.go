package reconcile

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// reconcileTraced is reconcileWork within a span, if the spec of work continues a trace. Reconciles
// after the first one that succeeds are not part of it.
func (r *Reconciler) reconcileTraced(ctx context.Context, logger *slog.Logger, e *entry, work *inbox.Entry) (time.Duration, error) {
	change := r.changeOf(work)
	ctx, span := r.Tracer.Attempt(ctx, change, "reconcile ManifestWork", tracing.Work{
		Name: work.Meta.Name, UID: string(work.UID), Source: string(work.Source), Cluster: string(work.Cluster), Generation: int64(work.Generation),
	})
	after, err := r.reconcileWork(ctx, logger, e, work)
	span.End(tracing.FailedIf(err))
	if change != nil && err == nil && !e.history.expressions.waits && (work.Deleting == nil || r.Outbox.Final(work.Key)) {
		r.Changes.Done(work.Key, change)
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
