package reconcile

import "time"

// Bounds of the wait before something that failed is tried again. The wait triples, so that what
// cannot succeed is tried nine times in the first minute, and once a minute later. That of a work as a
// whole doubles, which makes 13.
const (
	minRetryDelay = 10 * time.Millisecond
	maxRetryDelay = time.Minute
)

// retryDelay returns how long to wait after that many failures in a row, the last one not counted.
func retryDelay(failures int) time.Duration {
	delay := minRetryDelay
	for range min(failures, 20) {
		delay *= 3
	}
	return min(delay, maxRetryDelay)
}

// backoff is the wait before the next attempt. The zero backoff does not wait.
type backoff struct {
	failures int
	until    time.Time
}

// failed returns the backoff after another failure at now.
func (b backoff) failed(now time.Time) backoff {
	return backoff{failures: b.failures + 1, until: now.Add(retryDelay(b.failures))}
}

// wait returns how long to wait from now on; 0 or less: no longer.
func (b backoff) wait(now time.Time) time.Duration { return b.until.Sub(now) }
