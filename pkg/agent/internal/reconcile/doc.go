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
package reconcile
