package pace

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// Pause is how long writes of the backlog wait when somebody changes something by hand: as long as such a change takes where
	// nothing else happens. It is followed by as long without a pause, whatever else is changed.
	Pause = 50 * time.Millisecond
	// Attended is how long, after such a change, one write of the backlog at a time is under way: the next one is likely to come.
	Attended = 10 * time.Second
)

// Gate has lanes, one for each kind of writes to a server, which give way together to what people change by hand. It is safe for
// concurrent use.
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
	waiting          []chan struct{} // in this order; closed for who may go on
	running, hanging int             // hanging of those that run
}

// Place is the turn of one write, which ends with Write or Leave.
type Place struct {
	lane  *Lane
	queue *queue
}

// NewLane adds a lane for at most so many writes, at least 1.
func (g *Gate) NewLane(most int) *Lane {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &Lane{gate: g, most: most, limit: New(most)}
	g.lanes = append(g.lanes, l)
	return l
}

// GiveWay says that somebody has changed something by hand: for [Pause] no write of the backlog begins, and for [Attended] one at a
// time is under way. It does not block.
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
	time.AfterFunc(Pause, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.admit()
	})
}

// Enter waits for the turn of a write. byHand says that it is about what somebody has changed by hand, and not of the backlog. It returns
// an error if ctx ends before.
func (l *Lane) Enter(ctx context.Context, byHand bool) (*Place, error) {
	g, admitted, p := l.gate, make(chan struct{}), &Place{l, &l.backlog}
	if byHand {
		p.queue = &l.byHand
	}
	g.mu.Lock()
	p.queue.waiting = append(p.queue.waiting, admitted)
	g.admit()
	g.mu.Unlock()
	select {
	case <-admitted:
		return p, nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(p.queue.waiting, admitted); i >= 0 {
		p.queue.waiting = slices.Delete(p.queue.waiting, i, i+1)
	} else {
		p.leave()
	}
	return nil, ctx.Err()
}

// Leave gives the place back without a write.
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

// Write calls write, and gives the place back. While write hangs, its place does not count, so that others need not wait.
func (p *Place) Write(write func()) {
	g, began := p.lane.gate, time.Now()
	hangs := time.AfterFunc(Patience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		p.queue.hanging++
		g.admit()
	})
	write()
	took, hung := time.Since(began), !hangs.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	if hung {
		p.queue.hanging--
	}
	p.lane.limit.Took(took)
	p.leave()
}

// admit lets those go on whose turn it is: what people have changed, and then the backlogs of the lanes in turns. The caller holds mu.
func (g *Gate) admit() {
	for _, l := range g.lanes {
		for l.admits(&l.byHand) {
		}
	}
	now := time.Now()
	if now.Before(g.paused) {
		return
	}
	for passed := 0; passed < len(g.lanes); passed++ {
		if now.Before(g.attended) && slices.ContainsFunc(g.lanes, func(l *Lane) bool { return l.backlog.running > l.backlog.hanging }) {
			return
		}
		l := g.lanes[g.next%len(g.lanes)]
		g.next++
		if l.admits(&l.backlog) {
			passed = -1
		}
	}
}

// admits lets the first of a queue go on if the limit allows it, and reports whether it did. The caller holds gate.mu.
func (l *Lane) admits(q *queue) bool {
	if len(q.waiting) == 0 || q.running-q.hanging >= l.limit.Allowed() || q.running >= l.most {
		return false
	}
	close(q.waiting[0])
	q.waiting = q.waiting[1:]
	q.running++
	return true
}
