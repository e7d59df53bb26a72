package pace

import (
	"context"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
)

const (
	// Pause is how long writes of the backlog wait when somebody changes something by hand: as long as such a change takes where
	// nothing else happens. It is followed by as long without a pause, whatever else is changed.
	Pause = 50 * time.Millisecond
	// Attended is how long, after such a change, one write of the backlog at a time is under way: the next one is likely to come. A write
	// that takes longer than Pause does not count.
	Attended = 10 * time.Second
)

// Gate has lanes, one for each kind of writes to a server. While writes wait for each other there, they give way together to what people
// change by hand. It is safe for concurrent use.
type Gate struct {
	mu       sync.Mutex
	lanes    []*Lane   // guarded by mu
	next     int       // guarded by mu: the lane whose turn it is, modulo their number
	paused   time.Time // guarded by mu: until then
	attended time.Time // guarded by mu: until then
}

// Lane lets as many writes of one kind through together as their [Limit] allows: of the backlog, and as many about what people have changed
// by hand. It is safe for concurrent use.
type Lane struct {
	gate            *Gate
	most            int
	limit           *Limit // guarded by gate.mu
	byHand, backlog queue  // guarded by gate.mu
}

// queue is who waits and who writes.
type queue struct {
	waiting                *fairqueue.Queue[*Place, string] // owners take turns
	running, slow, hanging int                              // the last two are of those that run: longer than Pause, and Patience
}

// Place is a turn to write. It belongs to one goroutine.
type Place struct {
	lane     *Lane
	queue    *queue
	owner    string
	admitted chan struct{} // closed once its turn has come
}

// NewLane adds a lane for at most so many writes, at least 1.
func (g *Gate) NewLane(most int) *Lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	ownerOf := func(p *Place) string { return p.owner }
	l := &Lane{gate: g, most: most, limit: New(most)}
	l.byHand.waiting, l.backlog.waiting = fairqueue.New(ownerOf), fairqueue.New(ownerOf)
	g.lanes = append(g.lanes, l)
	return l
}

// GiveWay says that somebody has changed something by hand: while writes wait for each other, none of the backlog begins for [Pause], and one at
// a time is under way for [Attended]. It does not block.
func (l *Lane) GiveWay() {
	g := l.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.attended = now.Add(Attended)
	if now.Before(g.paused.Add(Pause)) {
		return
	}
	g.paused = now.Add(Pause)
	g.after(Pause, func() {})
}

// after has do called at a time, unless it is stopped, and lets those go on whose turn it is then.
func (g *Gate) after(d time.Duration, do func()) *time.Timer {
	return time.AfterFunc(d, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		do()
		g.admit()
	})
}

// Enter waits for a place, which Leave gives back. owner is whose backlog the writes are of; empty: they are about what somebody has
// changed by hand. It returns an error if ctx ends before.
func (l *Lane) Enter(ctx context.Context, owner string) (*Place, error) {
	g, p := l.gate, &Place{lane: l, queue: &l.backlog, owner: owner, admitted: make(chan struct{})}
	if owner == "" {
		p.queue = &l.byHand
	}
	g.mu.Lock()
	p.queue.waiting.Push(p)
	g.admit()
	g.mu.Unlock()
	select {
	case <-p.admitted:
		return p, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !p.queue.waiting.Remove(p) {
		p.leave()
	}
	return nil, ctx.Err()
}

// Leave gives the place back.
func (p *Place) Leave() {
	p.lane.gate.mu.Lock()
	defer p.lane.gate.mu.Unlock()
	p.leave()
}

// leave is Leave. The caller holds mu of the gate.
func (p *Place) leave() {
	p.queue.running--
	p.lane.gate.admit()
}

// Write calls write, which reports whether it has written what it should. While it hangs, its place does not count, so that others need not wait.
func (p *Place) Write(write func() bool) {
	g, q, began := p.lane.gate, p.queue, time.Now()
	slow, hangs := g.after(Pause, func() { q.slow++ }), g.after(Patience, func() { q.hanging++ })
	wrote := write()
	took, wasSlow, hung := time.Since(began), !slow.Stop(), !hangs.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if wasSlow {
		q.slow--
	}
	if hung {
		q.hanging--
	}
	if !wrote {
		return
	}
	p.lane.limit.Took(took, q.running-q.hanging >= p.lane.limit.Allowed())
}

// admit lets those go on whose turn it is: what people have changed, and then the backlogs of the lanes in turns. The caller holds mu.
func (g *Gate) admit() {
	for _, l := range g.lanes {
		for l.admits(&l.byHand) {
		}
	}
	now := time.Now()
	for passed := 0; passed < len(g.lanes) && !g.givesWay(now); passed++ {
		l := g.lanes[g.next%len(g.lanes)]
		g.next++
		if l.admits(&l.backlog) {
			passed = -1
		}
	}
}

// givesWay reports whether the backlog has to wait. The caller holds mu.
func (g *Gate) givesWay(now time.Time) bool {
	running, crowded := 0, false
	for _, l := range g.lanes {
		running += l.backlog.running - l.backlog.slow
		crowded = crowded || l.limit.Crowded()
	}
	return crowded && (now.Before(g.paused) || now.Before(g.attended) && running > 0)
}

// admits lets the next of a queue go on if the limit allows it, and reports whether it did. The caller holds gate.mu.
func (l *Lane) admits(q *queue) bool {
	if q.waiting.Len() == 0 || q.running-q.hanging >= l.limit.Allowed() || q.running >= l.most {
		return false
	}
	close(q.waiting.Pop().admitted)
	q.running++
	return true
}
