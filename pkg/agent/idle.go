package agent

import (
	"context"
	"time"
)

const (
	// idleAfter is how long no work must have been looked at for the agent to be
	// idle.
	idleAfter = 2 * time.Second
	// busyPasses is how many looks at works leave enough garbage behind to tell.
	busyPasses = 100
)

// runIdle calls Config.Idle when much has been done and nothing is any more, until
// ctx ends.
func (a *Agent) runIdle(ctx context.Context) {
	if a.config.Idle == nil {
		return
	}
	timer := time.NewTimer(idleAfter)
	defer timer.Stop()
	done := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.busy:
			timer.Reset(idleAfter)
		case <-timer.C:
			if now := a.passes.Load(); now-done >= busyPasses {
				a.config.Idle()
				done = now
			}
		}
	}
}

// passed tells runIdle that a work has been looked at.
func (a *Agent) passed() {
	a.passes.Add(1)
	select {
	case a.busy <- struct{}{}:
	default: // it knows
	}
}
