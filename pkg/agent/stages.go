package agent

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// runner is a function that runs until its context ends.
type runner func(context.Context) error

// stages are groups of runners. They start one after the other and stop in reverse order.
type stages []*stage

// stage is a group of runners that start and stop together.
type stage struct {
	stop  context.CancelFunc
	group errgroup.Group
}

// start starts a stage. Its context has the values of ctx, but ends only with stop. The first error
// of a runner goes to fail.
func (s *stages) start(ctx context.Context, fail context.CancelCauseFunc, runners ...runner) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	next := &stage{stop: stop}
	*s = append(*s, next)
	for _, run := range runners {
		next.group.Go(func() error {
			err := run(ctx)
			if err != nil {
				fail(err)
			}
			return err
		})
	}
}

// stop stops the stages from the last one to the first: each once the one after it has returned.
func (s *stages) stop() error {
	var errs []error
	for i := len(*s) - 1; i >= 0; i-- {
		(*s)[i].stop()
		errs = append(errs, (*s)[i].group.Wait())
	}
	return errors.Join(errs...)
}
