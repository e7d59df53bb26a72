package agent

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/store"
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

// Run serves the cluster until ctx ends or something fails. Then it stops the workers, publishes
// pending statuses for a few seconds, leaves the broker, and closes the state directory, in this
// order. It returns nil if ctx ended. It must be called once.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.load(); err != nil {
		return errors.Join(err, a.state.Close())
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var running stages
	running.start(ctx, fail, func(ctx context.Context) error { return store.Run(ctx, a.state, a.config.Logger) })
	running.start(ctx, fail, a.watches...)
	if a.reconciler.Recover(ctx) {
		a.ready.Store(true)
		running.start(ctx, fail, a.runTransport)
		running.start(ctx, fail, a.outbox.Run)
		running.start(ctx, fail, a.session.Run, a.reconciler.Run)
	}
	<-ctx.Done()
	a.ready.Store(false)
	return running.stop()
}

// load reads the state directory.
func (a *Agent) load() error {
	if err := a.inbox.Load(); err != nil {
		return err
	}
	return a.outbox.Load(func(key inbox.Key) bool {
		_, held := a.inbox.Get(key)
		return held
	})
}

// runTransport runs the connection to the broker until ctx ends. Sources are told before it ends.
func (a *Agent) runTransport(ctx context.Context) error {
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	stop := context.AfterFunc(ctx, func() {
		a.session.Leave(connected)
		disconnect()
	})
	defer stop()
	return a.config.Transport.Run(connected, a.session.Handler())
}
