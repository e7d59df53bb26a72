package agent

import (
	"context"
	"errors"

	"github.com/workwire/workwire/pkg/agent/internal/store"
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
	switch recovered, err := a.reconciler.Recover(ctx); {
	case err != nil:
		running.start(ctx, fail, func(context.Context) error { return err })
	case recovered:
		a.ready.Store(true)
		running.start(ctx, fail, a.runTransport)
		running.start(ctx, fail, a.outbox.Run)
		running.start(ctx, fail, a.session.Run, a.reconciler.Run, a.dryRuns.Run)
	}
	<-ctx.Done()
	a.ready.Store(false)
	return running.stop()
}

// Term is a term of leadership, see [store.Term].
type Term = store.Term

// load reads the state directory, unless another replica has led since it was written: what it
// holds may be old then, and a work is known by its AppliedManifestWork only, until its source
// sends it.
func (a *Agent) load() error {
	current, err := store.BeginTerm(a.state, a.config.Term, a.config.Logger)
	if err != nil {
		return err
	}
	if !current {
		return a.outbox.Discard()
	}
	if err := a.inbox.Load(); err != nil {
		return err
	}
	return a.outbox.Load(a.inbox.IsNewest)
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
