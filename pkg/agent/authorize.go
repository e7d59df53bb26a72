package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/agent/executor"
	"github.com/workwire/workwire/pkg/agent/strategy"
)

// permits gives what decides whether the work's executor may do what applying a
// manifest takes; nil if it has none. What it denies is looked at again when it
// says so. What it allows is not: it is asked again when something is to be
// written, and tells of changes by itself.
func (a *Agent) permits(u *under) func(context.Context, *strategy.Manifest) error {
	account, err := executor.AccountOf(u.entry.Spec.Executor)
	a.executors.Follow(u.name, account)
	switch {
	case err != nil:
		return func(context.Context, *strategy.Manifest) error { return err }
	case account == nil:
		return nil
	}
	var mu sync.Mutex // of u.again
	return func(ctx context.Context, m *strategy.Manifest) error {
		if m.Recreates() && !m.Owned {
			// To create an object anew takes deleting it.
			reviewed := *m
			reviewed.Owned, m = true, &reviewed
		}
		recheck, err := a.executors.Check(ctx, *account, m)
		if denied(err) {
			mu.Lock()
			defer mu.Unlock()
			u.lookAgain(max(recheck, time.Millisecond))
		}
		return err
	}
}

// denied says whether an executor was found not to be allowed to, which is asked
// again at a time of its own.
func denied(err error) bool {
	var denial *executor.DeniedError
	return errors.As(err, &denial)
}
