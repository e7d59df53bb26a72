package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/workwire/workwire/pkg/runtime/logging"
)

// logManifestFailure logs why manifest i was not applied, unless that was logged before and is
// still so.
func (rec *reconciliation) logManifestFailure(i int, err error, now time.Time) {
	h := rec.history()
	if h.logged == nil {
		h.logged = map[int]*logging.Repeated{}
	}
	before := h.logged[i]
	if before == nil {
		before = &logging.Repeated{}
		h.logged[i] = before
	}
	if log, notLogged := before.Failed(err.Error(), now); log {
		m := &rec.manifests[i]
		rec.logger.Warn("applying a manifest failed, retrying", "manifest", i, "kind", m.Meta.Kind, "object", m.Ref,
			"notLogged", notLogged, "error", err)
	}
}

// noteApplied ends the series of failures of manifest i.
func (h *history) noteApplied(i int) {
	if delete(h.logged, i); len(h.logged) == 0 {
		h.logged = nil
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
		if err := rec.outcomes[i].Err; err != nil && !unmoved(err) && !rec.waiting[i] {
			meta := rec.manifests[i].Meta
			errs = append(errs, fmt.Errorf("manifest %d, %s %s/%s: %w", i, meta.Kind, meta.Namespace, meta.Name, err))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return loggedError{errors.Join(errs...)}
}
