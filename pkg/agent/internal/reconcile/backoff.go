package reconcile

import (
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
)

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

// refusal is a manifest that could not be applied, and when to try again. Events about other
// objects of the work, or about the same one, do not bring the next attempt forward.
type refusal struct {
	backoff
	outcome apply.Outcome
}

// waits returns how long a refused manifest has to wait, given its object as it is now. It does not
// wait any longer if the object is gone, for whose end it may have waited.
func (f *refusal) waits(live object.Live, now time.Time) time.Duration {
	if f.outcome.Live != nil && live.State == object.Absent {
		return 0
	}
	return f.wait(now)
}

// awaitRefused sets which manifests wait for their next attempt, and requeues the work for it.
func (rec *reconciliation) awaitRefused(now time.Time) {
	rec.waiting = make([]bool, len(rec.manifests))
	if rec.changed || rec.backoff {
		return
	}
	for i, refused := range rec.history().refused {
		if wait := refused.waits(rec.observed[i].live, now); wait > 0 {
			rec.waiting[i] = true
			rec.requeueWithin(wait)
		}
	}
}

// repeatRefused gives each manifest that waits the outcome of its last attempt.
func (rec *reconciliation) repeatRefused() {
	for i, waits := range rec.waiting {
		if !waits {
			continue
		}
		outcome := rec.history().refused[i].outcome
		if live := rec.outcomes[i].Live; live != nil {
			outcome.Live = live
		}
		rec.outcomes[i] = outcome
	}
}

// rememberRefused notes which manifests were refused, and when to try them again.
func (rec *reconciliation) rememberRefused(now time.Time) {
	h := rec.history()
	for i := range rec.outcomes {
		outcome := &rec.outcomes[i]
		switch {
		case rec.backoff || rec.waiting[i]:
		case outcome.Err == nil || unmoved(outcome.Err) && outcome.Requests == 0: // a denial without a request costs nothing
			delete(h.refused, i)
		default:
			if h.refused == nil {
				h.refused = map[int]*refusal{}
			}
			before := backoff{}
			if refused := h.refused[i]; refused != nil {
				before = refused.backoff
			}
			kept := *outcome
			kept.Requests = 0
			h.refused[i] = &refusal{backoff: before.failed(now), outcome: kept}
		}
	}
	if len(h.refused) == 0 {
		h.refused = nil
	}
}
