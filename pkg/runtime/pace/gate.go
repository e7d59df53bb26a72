package pace

import (
	"context"
	"sync"
	"time"
)

// Gate lets as many writes through together as its [Limit] allows. It is safe for concurrent use.
type Gate struct {
	places chan struct{} // free places

	mu    sync.Mutex
	limit *Limit // guarded by mu
	made  int    // guarded by mu: places, free or taken
}

// NewGate returns a gate for at most so many writes, at least 1.
func NewGate(most int) *Gate {
	g := &Gate{places: make(chan struct{}, most), limit: New(most)}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.make()
	return g
}

// make makes places, or takes free ones away, as the limit says. The caller holds mu.
func (g *Gate) make() {
	for ; g.made < g.limit.Allowed(); g.made++ {
		g.places <- struct{}{}
	}
	for g.made > g.limit.Allowed() {
		select {
		case <-g.places:
			g.made--
		default:
			return
		}
	}
}

// Enter waits for a place, which Leave or Write gives back. It returns an error if ctx ends before.
func (g *Gate) Enter(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-g.places:
		return nil
	}
}

// Leave gives a place back that was not needed.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.give()
}

// Write calls write, and gives the place back: when it has ended, or, so that others need not wait, when it hangs.
func (g *Gate) Write(write func()) {
	began := time.Now()
	hangs := time.AfterFunc(Patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.limit.Hangs()
		g.make()
	})
	write()
	took, hung := time.Since(began), !hangs.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit.Took(took, hung)
	g.give()
}

// give gives a place back, as far as the limit says. The caller holds mu.
func (g *Gate) give() {
	g.places <- struct{}{}
	g.make()
}
