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
)

// idleDetector calls a function when many reconciles are followed by none.
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
	done := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.active:
			timer.Reset(idleAfter)
		case <-timer.C:
			if now := d.reconciles.Load(); now-done >= idleThreshold {
				d.idle()
				done = now
			}
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
