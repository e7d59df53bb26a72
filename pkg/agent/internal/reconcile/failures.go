package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/runtime/logging"
	"github.com/workwire/workwire/pkg/workstate"
)

// failure is a manifest that could not be applied, and when to try again. Events about other
// objects of the work, or about the same one, do not bring the next attempt forward.
type failure struct {
	backoff
	outcome apply.Outcome // of the last attempt
	logged  logging.Repeated
}

// waits returns how long a failed manifest has to wait, given its object as it is now. It does not
// wait any longer if the object is gone, for whose end it may have waited.
func (f *failure) waits(live object.Live, now time.Time) time.Duration {
	if f.outcome.Live != nil && live.State == object.Absent {
		return 0
	}
	return f.wait(now)
}

// awaitFailed sets which manifests wait for their next attempt, and requeues the work for it.
func (rec *reconciliation) awaitFailed(now time.Time) {
	rec.retryWaits = make([]bool, len(rec.manifests))
	if rec.changed || rec.repairsWait {
		return
	}
	for i, failed := range rec.history().failures {
		if wait := failed.waits(rec.observed[i].live, now); wait > 0 {
			rec.retryWaits[i] = true
			rec.requeueWithin(wait)
		}
	}
}

// repeatFailed gives each manifest that waits the outcome of its last attempt.
func (rec *reconciliation) repeatFailed() {
	for i, waits := range rec.retryWaits {
		if waits {
			live := rec.outcomes[i].Live
			rec.outcomes[i] = rec.history().failures[i].outcome
			rec.outcomes[i].Live = cmp.Or(live, rec.outcomes[i].Live)
		}
	}
}

// noteFailure keeps why manifest i could not be applied, and when to try again, unless repairs have to wait. It logs that, unless
// it was logged before and is still so.
func (rec *reconciliation) noteFailure(i int, now time.Time) {
	h, m, outcome := rec.history(), &rec.manifests[i], rec.outcomes[i]
	if h.failures == nil {
		h.failures = map[int]*failure{}
	}
	f := cmp.Or(h.failures[i], &failure{})
	h.failures[i] = f
	if log, notLogged := f.logged.Failed(outcome.Err.Error(), now); log {
		name := m.Ref.String()
		if m.Ref == (object.Ref{}) { // of an unknown kind, say
			name = workstate.ObjectName(m.Meta)
		}
		rec.logger.Warn("applying a manifest failed, retrying", "manifest", i, "kind", m.Meta.Kind, "object", name,
			"notLogged", notLogged, "error", outcome.Err)
	}
	switch {
	case rec.repairsWait:
	case unmoved(outcome.Err) && outcome.Requests == 0: // a denial without a request costs nothing
		f.backoff, f.outcome = backoff{}, apply.Outcome{Err: outcome.Err}
	default:
		f.backoff, f.outcome = f.failed(now), outcome
		f.outcome.Requests = 0
	}
}

// logFailure logs err, why a reconcile failed, without what was logged about manifests, and unless
// that was logged before and is still so.
func (h *history) logFailure(logger *slog.Logger, err error, now time.Time) {
	if err = unlogged(err); err == nil {
		if !h.removing() { // else a removal may have failed before and wait for its next attempt
			h.failing = logging.Repeated{}
		}
		return
	}
	if log, notLogged := h.failing.Failed(err.Error(), now); log {
		logger.Warn("reconcile failed, retrying", "notLogged", notLogged, "error", err)
	}
}

// loggedError is an error that was logged already.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// unlogged returns err without the parts that were logged already, nil if nothing is left.
func unlogged(err error) error {
	if _, logged := err.(loggedError); logged { //nolint:errorlint // what wraps it has not been logged
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var left []error
	for _, part := range joined.Unwrap() {
		if rest := unlogged(part); rest != nil {
			left = append(left, rest)
		}
	}
	if len(left) == 1 {
		return left[0]
	}
	return errors.Join(left...)
}

// manifestErrors joins the errors of the manifests that were tried, and are to be retried with
// backoff. They have been logged.
func (rec *reconciliation) manifestErrors() error {
	var errs []error
	for i := range rec.outcomes {
		if err := rec.outcomes[i].Err; err != nil && !unmoved(err) && !rec.retryWaits[i] {
			meta := rec.manifests[i].Meta
			errs = append(errs, fmt.Errorf("manifest %d, %s %s/%s: %w", i, meta.Kind, meta.Namespace, meta.Name, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return loggedError{errors.Join(errs...)}
}
