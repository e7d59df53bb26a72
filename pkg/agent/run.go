package agent

import (
	"context"
	"errors"

	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/store"
)

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
	running.start(ctx, fail, func(ctx context.Context) error { return store.Run(ctx, a.state) })
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
	ended := make(chan error, 1)
	go func() { ended <- a.config.Transport.Run(connected, a.session.Handler()) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		a.session.Leave(connected)
		disconnect()
		return <-ended
	}
}
