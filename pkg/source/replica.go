package source

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/workwire/workwire/pkg/source/store"
)

// deliver delivers works and statuses until ctx ends; with a shared store, while this client holds
// the lease.
func (c *Client) deliver(ctx context.Context) error {
	shared, ok := c.config.Store.(store.Shared)
	if !ok {
		c.publishing.Store(true)
		return c.engine.Run(ctx)
	}
	// The cause of the caller's context is no failure, so it is not that of ctx.
	ended := ctx
	ctx, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ended, func() { fail(nil) })()
	var following sync.WaitGroup
	defer following.Wait()
	defer fail(nil)
	c.memory.writer.onFailure(fail)
	following.Go(func() {
		if err := shared.Follow(ctx, c.memory.writer.changed); err != nil {
			fail(err)
		}
	})
	err := c.lead(ctx, fail, shared)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("source %q: %w", c.config.SourceID, err)
	}
	return nil
}

// lead waits for the lease and publishes while this client holds it, or until ctx ends.
func (c *Client) lead(ctx context.Context, fail context.CancelCauseFunc, shared store.Shared) error {
	lease, err := shared.Acquire(ctx)
	if ctx.Err() != nil || err != nil {
		return unlessEnded(ctx, err)
	}
	// The lease is released once nothing is published any more.
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	var held sync.WaitGroup
	defer held.Wait()
	defer release()
	held.Go(func() {
		if err := lease.Hold(holding); err != nil {
			fail(err)
		}
	})
	c.lease = lease
	// An update without changes reads what the last publisher has stored.
	if _, err := c.memory.update(ctx, func(*view) (*change, error) { return nil, nil }); err != nil {
		return unlessEnded(ctx, err)
	}
	c.publishing.Store(true)
	removed, err := shared.Removed(ctx)
	if err != nil {
		return unlessEnded(ctx, err)
	}
	for _, r := range removed {
		last, err := decodeRecord(string(r.UID), r.Data)
		if err != nil {
			return err
		}
		if _, again := c.memory.get(r.UID); !again {
			c.engine.WorkRemoved(last.work)
		}
	}
	c.config.Logger.Info("this replica publishes now", "source", c.config.SourceID)
	return c.engine.Run(ctx)
}

// unlessEnded returns err, or nil if ctx has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
