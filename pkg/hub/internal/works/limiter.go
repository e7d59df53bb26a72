package works

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
)

const (
	// maxWritesPerSecond is how many works' conditions are written a second.
	maxWritesPerSecond = 50
	// behindWritesPerSecond is the same while more than behindStatuses works have a status that the hub could
	// write: a hub that is behind has the answers of most works that it would call pending.
	behindWritesPerSecond = 5
	behindStatuses        = 100
)

// writeLimiter limits how many works' conditions are written a second. It is safe for concurrent use.
type writeLimiter struct{ usual, behind flowcontrol.RateLimiter }

func newWriteLimiter() writeLimiter {
	return writeLimiter{
		usual:  flowcontrol.NewTokenBucketRateLimiter(maxWritesPerSecond, maxWritesPerSecond),
		behind: flowcontrol.NewTokenBucketRateLimiter(behindWritesPerSecond, behindWritesPerSecond),
	}
}

// wait waits until one more condition may be written, while so many works have a status that is not written
// yet. It returns an error if ctx ends before.
func (l writeLimiter) wait(ctx context.Context, statusesPending int) error {
	if statusesPending > behindStatuses {
		return l.behind.Wait(ctx)
	}
	return l.usual.Wait(ctx)
}
