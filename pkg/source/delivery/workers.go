package delivery

import (
	"context"
	"sync"
	"time"
)

// jobs is where a pump gets what it does.
type jobSource interface {
	// next gives a job that can be done now.
	next(now time.Time) (job func(context.Context), ok bool)
	// wakeAt is when the next job becomes possible by time alone.
	nextDue() (time.Time, bool)
}

// pump does jobs, at most parallel at a time, until ctx ends and those begun have
// ended. A send on wake makes it look for more.
func runWorkers(ctx context.Context, parallel int, wake <-chan struct{}, from jobSource) {
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan struct{}, parallel)
	active := 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for active < parallel && ctx.Err() == nil {
			job, ok := from.next(time.Now())
			if !ok {
				break
			}
			active++
			running.Go(func() {
				job(ctx)
				done <- struct{}{}
			})
		}
		timer.Stop()
		var due <-chan time.Time
		if at, ok := from.nextDue(); ok && active < parallel {
			timer.Reset(time.Until(at))
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-done:
			active--
		case <-due:
		}
	}
}

// signal wakes a pump; wake has room for one.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
