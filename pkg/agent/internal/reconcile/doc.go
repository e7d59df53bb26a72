// Package reconcile makes the cluster hold what works declare, and reports what the cluster holds.
//
// A [Table] has one entry for each name of an AppliedManifestWork, and one queue. Everything that
// concerns a work enqueues its name: a new spec, a change of one of its objects, a kind that the
// cluster now serves. A [Reconciler] takes names from the queue and reconciles their works, each
// name in one goroutine at a time:
//
//	table := reconcile.NewTable()
//	objects := observe.New(observe.Config{Changed: table.ObjectChanged, ...})
//	...
//	r, err := reconcile.New(reconcile.Config{Table: table, Objects: objects, ...})
//	if ok, err := r.Recover(ctx); ok {
//		err = r.Run(ctx)
//	}
//
// A reconcile is worker.go, then remove.go for a deleted work, evict.go for an AppliedManifestWork
// without a work, keep.go for a work that its source does not know, and apply.go for all others.
// The last one prepares (prepare.go), applies, remembers the results for the next reconcile
// (remember.go), and reports the status (status.go).
//
// What is not applied this time, and why: staged.go (its time has not come), access.go (the executor may not read it, the
// owner's policy forbids it), order.go and dependencies.go (it waits for others), complete.go (it is done),
// failures.go and repairs.go (it failed, or was repaired, a moment ago), by the pauses of backoff.go. What one reconcile leaves to the next is
// history.go; what it knows itself, reconciliation.go. removeobjects.go has the objects that are to go, of a deleted work or of a spec that
// no longer has them; resources.go what the AppliedManifestWork names. pods.go and warnings.go add to what is reported, expressions.go
// bounds what the evaluation of CEL costs, putoff.go has records written later. events.go is what comes in, audit.go, metrics.go and tracing.go what goes out.
package reconcile
