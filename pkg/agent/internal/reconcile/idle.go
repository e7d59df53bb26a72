package reconcile

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// idleAfter is how long no work must be reconciled for the agent to be idle.
	idleAfter = 2 * time.Second
	// idleThreshold is how many reconciles leave enough garbage behind to call Config.Idle.
	idleThreshold = 100
	// idleInterval is the time between calls after less than that. Go collects garbage as often when there is little.
	idleInterval = 2 * time.Minute
)

// idleDetector calls a function when the start or many reconciles are followed by none, and now and then at rest.
type idleDetector struct {
	idle       func() // nil: none
	reconciles atomic.Uint64
	active     chan struct{}
}

func newIdleDetector(idle func()) *idleDetector {
	return &idleDetector{idle: idle, active: make(chan struct{}, 1)}
}

// run calls idle until ctx ends.
func (d *idleDetector) run(ctx context.Context) {
	if d.idle == nil {
		return
	}
	timer := time.NewTimer(idleAfter)
	defer timer.Stop()
	last, done := time.Time{}, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.active:
			timer.Reset(idleAfter)
		case <-timer.C:
			if now := d.reconciles.Load(); now-done >= idleThreshold || time.Since(last) >= idleInterval {
				d.idle()
				last, done = time.Now(), now
			}
			timer.Reset(idleInterval)
		}
	}
}

// reconciled counts a reconcile.
func (d *idleDetector) reconciled() {
	d.reconciles.Add(1)
	select {
	case d.active <- struct{}{}:
	default: // run has yet to receive the last one
	}
}
