package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/agent/executor"
	"github.com/workwire/workwire/pkg/agent/object"
)

// reviewsAtATime is how many manifests of one work are reviewed at a time.
const reviewsAtATime = 8

// authorize lets manifests fail that the work's executor may not apply. Those
// that are left alone are not reviewed.
func (a *Agent) authorize(ctx context.Context, u *under) {
	account, err := executor.AccountOf(u.entry.Spec.Executor)
	a.executors.Follow(u.name, account)
	if err == nil && account == nil {
		return
	}
	var mu sync.Mutex // of u.again
	var group errgroup.Group
	group.SetLimit(reviewsAtATime)
	for i := range u.manifests {
		m := &u.manifests[i]
		if m.Err != nil || m.Ref == (object.Ref{}) || u.leave(i) {
			continue
		}
		if err != nil {
			m.Err = err
			continue
		}
		group.Go(func() error {
			var recheck time.Duration
			recheck, m.Err = a.executors.Check(ctx, *account, m)
			mu.Lock()
			defer mu.Unlock()
			u.lookAgain(recheck)
			return nil
		})
	}
	_ = group.Wait() // what fails is in the manifests
}

// denied says whether an executor was found not to be allowed to, which is asked
// again at a time of its own.
func denied(err error) bool {
	var denial *executor.DeniedError
	return errors.As(err, &denial)
}
