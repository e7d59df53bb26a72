// Package slots bounds how many tasks run at a time, so that slow ones do not keep quick ones
// waiting.
//
// A task that runs for long moves to a second, larger pool and leaves its slot to the next one: a
// webhook that hangs occupies a slot for a second, not for as long as it hangs. While the second
// pool is full, slow tasks keep their slots.
//
//	pool := slots.New(16)
//	release, err := pool.Acquire(ctx)
//	if err == nil {
//		defer release()
//		...
//	}
package slots

import (
	"context"
	"sync"
	"time"
)

const (
	// SlowAfter is how long a task runs before it moves to the second pool.
	SlowAfter = time.Second
	// SlowFactor is the size of the second pool in relation to the first.
	SlowFactor = 4
)

// Pool holds slots. It is safe for concurrent use.
type Pool struct {
	quick, slow chan struct{} // a token for each task
}

// New returns a pool of that many slots for quick tasks, and four times as many for slow ones.
func New(quick int) *Pool {
	return &Pool{quick: make(chan struct{}, quick), slow: make(chan struct{}, SlowFactor*quick)}
}

// Acquire waits for a slot, which release frees. It returns the cause of ctx if that ends first.
// Release must be called once.
func (p *Pool) Acquire(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case p.quick <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var mu sync.Mutex
	held, released := p.quick, false
	move := time.AfterFunc(SlowAfter, func() {
		mu.Lock()
		defer mu.Unlock()
		if released {
			return
		}
		select {
		case p.slow <- struct{}{}:
			<-p.quick
			held = p.slow
		default: // full
		}
	})
	return func() {
		move.Stop()
		mu.Lock()
		defer mu.Unlock()
		released = true
		<-held
	}, nil
}
