package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/agent/inbox"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// runWorkers brings names from the queue up to date until ctx ends.
func (a *Agent) runWorkers(ctx context.Context) {
	var workers sync.WaitGroup
	for range a.config.Workers {
		workers.Go(func() {
			for {
				name, stopped := a.queue.Get()
				if stopped {
					return
				}
				a.pass(ctx, name)
				a.queue.Done(name)
				a.passed()
			}
		})
	}
	<-ctx.Done()
	a.queue.ShutDown()
	workers.Wait()
}

// pass brings all works that go by name up to date, the oldest first, and queues
// name again where it has to be looked at later.
func (a *Agent) pass(ctx context.Context, name string) {
	start, result := time.Now(), "ok"
	defer func() { a.metrics.passes.WithLabelValues(result).Observe(time.Since(start).Seconds()) }()
	keys := a.holders.of(name)
	if len(keys) == 0 {
		logger := a.config.Logger.With("appliedManifestWork", name)
		again, err := a.unclaimed(ctx, logger, name)
		if !a.settle(ctx, logger, name, again, err) {
			result = "error"
		}
		return
	}
	for _, key := range keys {
		// In this order: a work that was finished before it was looked up may have
		// been forgotten, and come back under the same UID, in between.
		finished := a.finished(key)
		entry, held := a.inbox.Get(key)
		if !held {
			a.holders.drop(name, key)
			continue
		}
		if entry.Deleting != nil && finished {
			continue // its source is being told
		}
		logger := a.config.Logger.With("work", entry.Meta.Name, "uid", key.UID, "source", key.Source)
		again, err := a.bring(ctx, logger, name, entry)
		if !a.settle(ctx, logger, name, again, err) {
			result = "error"
		}
		if ctx.Err() != nil {
			return
		}
		if _, held := a.inbox.Get(key); !held && entry.Deleting == nil {
			a.outbox.Forget(key) // another work has taken the name meanwhile
		}
		if entry.Deleting != nil && !a.finished(key) {
			return // a later work of that name waits until this one is gone
		}
	}
}

// settle queues name for when it is to be looked at again, and reports whether
// it went well.
func (a *Agent) settle(ctx context.Context, logger *slog.Logger, name string, again time.Duration, err error) bool {
	if ctx.Err() != nil {
		return true
	}
	if err != nil {
		logger.Warn("the work is not as it should be and is tried again", "retry", a.queue.NumRequeues(name)+1, "error", err)
		a.queue.AddRateLimited(name)
	} else {
		a.queue.Forget(name)
	}
	if again > 0 {
		a.queue.AddAfter(name, again) // what fails must not hold up what is polled
	}
	return err == nil
}

// release forgets all about a name that no work goes by.
func (a *Agent) release(name string) {
	a.works.drop(name)
	a.waiting.set(name, nil)
	a.objects.Follow(name, nil)
	a.named.Want(name, nil)
	a.executors.Follow(name, nil)
}

// finished reports whether the last status of a deleted work has been made.
func (a *Agent) finished(key inbox.Key) bool { return a.outbox.Final(key) }

// bring brings one work up to date. It returns when to look again, 0 for when
// something changes.
func (a *Agent) bring(ctx context.Context, logger *slog.Logger, name string, entry *inbox.Entry) (time.Duration, error) {
	switch {
	case entry.Deleting != nil:
		return a.remove(ctx, logger, name, entry)
	case entry.HasSpec():
		return a.apply(ctx, logger, name, entry)
	case entry.Refusal != nil:
		a.report(entry, workv1.ManifestWorkStatus{})
		return 0, nil
	default:
		return 0, nil // known by its record only; its source is being asked
	}
}
