package reconcile

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/slots"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Run reconciles the names in the table's queue until ctx ends. It returns when no reconcile runs
// any more, and must be called once.
func (r *Reconciler) Run(ctx context.Context) error {
	var workers sync.WaitGroup
	slow := make(chan struct{}, slots.SlowFactor*r.Workers)
	for range r.Workers {
		workers.Go(func() { r.work(ctx, &workers, slow) })
	}
	<-ctx.Done()
	r.Table.queue.ShutDown()
	workers.Wait()
	return nil
}

// work reconciles names until the queue is shut down. A worker whose reconcile takes long is
// replaced by another, and ends with it, so that slow works do not keep the others waiting. Slow
// has a token for each of them.
func (r *Reconciler) work(ctx context.Context, workers *sync.WaitGroup, slow chan struct{}) {
	for {
		name, stopped := r.Table.queue.Get()
		if stopped {
			return
		}
		replaced := make(chan bool, 1)
		replace := time.AfterFunc(slots.SlowAfter, func() {
			select {
			case slow <- struct{}{}:
				workers.Go(func() { r.work(ctx, workers, slow) })
				replaced <- true
			default: // too many are slow
				replaced <- false
			}
		})
		r.reconcile(ctx, name)
		r.Table.queue.Done(name)
		r.Table.takeUp()
		if !replace.Stop() && <-replaced {
			<-slow
			return
		}
	}
}

// reconcile reconciles the works that have name, the oldest first, and requeues name where that is
// due.
func (r *Reconciler) reconcile(ctx context.Context, name string) {
	start, result := time.Now(), "ok"
	defer func() { r.metrics.duration.WithLabelValues(result).Observe(time.Since(start).Seconds()) }()
	e := r.Table.acquire(name)
	defer func() {
		r.metrics.countFlapping(e)
		r.Table.release(e)
	}()
	keys := r.Table.keys(name)
	if len(keys) == 0 {
		logger := r.Logger.With("appliedManifestWork", name)
		after, err := r.evict(ctx, logger, e)
		if !r.requeue(ctx, logger, e, after, err) {
			result = "error"
		}
		return
	}
	for _, key := range keys {
		// In this order: a work that was final before it was looked up may have been forgotten, and
		// may have come back under the same UID, in between.
		final := r.Outbox.Final(key)
		work, held := r.Inbox.Get(key)
		if !held {
			r.Table.remove(name, key)
			continue
		}
		if r.Inbox.Writing(key) {
			return // nothing is applied or reported that a crash would have the agent forget; the inbox tells of it once it is on disk
		}
		s := subject{work: work, entry: e, logger: r.Logger.With("work", work.Meta.Name, "uid", key.UID, "source", key.Source)}
		if work.Deleting != nil && final {
			if !r.mayBeBack(ctx, name, work) {
				continue // the outbox is sending the last status
			}
			r.Outbox.Forget(key)
		}
		after, err := r.reconcileTraced(ctx, s)
		if !r.requeue(ctx, s.logger, e, after, err) {
			result = "error"
		}
		if ctx.Err() != nil {
			return
		}
		if _, held := r.Inbox.Get(key); !held && work.Deleting == nil {
			r.Outbox.Forget(key) // another work took the name in the meantime
		}
		if work.Deleting != nil && !r.Outbox.Final(key) {
			return // the next work of that name waits until this one is gone
		}
	}
}

// mayBeBack reports whether a restore of the cluster may have brought back the AppliedManifestWork of a work that was removed: a watch shows
// it, and the API server has it, or does not answer. A watch that is late may show the one that was deleted.
func (r *Reconciler) mayBeBack(ctx context.Context, name string, work *inbox.Entry) bool {
	shown, _ := r.Applied.Get(name)
	if !isRecordOf(shown, work) {
		return false
	}
	now, err := r.Applied.Reread(ctx, shown)
	return err != nil || isRecordOf(now, work)
}

// isRecordOf reports whether amw, which may be nil, is of work, and not of another one of its name.
func isRecordOf(amw *workv1.AppliedManifestWork, work *inbox.Entry) bool {
	return amw != nil && amw.Annotations[applied.UIDAnnotation] == string(work.UID)
}

// requeue enqueues the name of e for its next reconcile: with backoff after an error, and after a time if
// that is not 0. It reports whether there was no error.
func (r *Reconciler) requeue(ctx context.Context, logger *slog.Logger, e *entry, after time.Duration, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	queue := r.Table.queue
	if !apierrors.IsConflict(err) || queue.NumRequeues(e.name) > 0 { // somebody has written the record meanwhile
		e.history.logFailure(logger, err, time.Now())
	}
	if err != nil {
		queue.AddRateLimited(e.name)
	} else {
		queue.Forget(e.name)
	}
	if after > 0 {
		queue.AddAfter(e.name, after) // a failure must not delay what is polled
	}
	return err == nil
}

// reconcileWork reconciles one work. It returns after how long to do so again, 0 for when something
// changes.
func (r *Reconciler) reconcileWork(ctx context.Context, s subject) (time.Duration, error) {
	if s.work.Deleting != nil || !s.work.HasSpec() {
		s.entry.history.repairs = repairs{} // nothing is restored
	}
	switch {
	case s.work.Deleting != nil:
		return r.remove(ctx, s)
	case s.work.Hold != nil:
		return r.keep(ctx, s)
	case s.work.HasSpec():
		return r.apply(ctx, s)
	case s.work.Refusal != nil:
		r.report(s.work, workv1.ManifestWorkStatus{})
		return 0, nil
	default:
		return 0, nil // known by its AppliedManifestWork only, until its source sends it
	}
}
