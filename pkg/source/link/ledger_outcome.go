package link

import (
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Pauses between tries that failed, and the longest one between repeats.
const (
	retryAfter     = time.Second
	retryAfterMax  = 30 * time.Second
	repeatAfterMax = 20 // times repeatAfter
)

// unsettled reports that e was published and that its agent has not said so.
func (e *entry) unsettled() bool {
	switch {
	case e.published == stamp{}:
		return false
	case e.published.deleting:
		return !e.deleteHeard
	default:
		return e.confirmed < e.published.generation
	}
}

// landed notes that c's turn is over, with nothing to publish for p.
func (l *ledger) landed(c claim, p plan) {
	e := c.entry
	if p.known {
		e.published, e.first = p.stamp, p.stamp.generation
		e.confirmed = max(e.confirmed, p.stamp.generation)
	}
	if e.refused != nil && e.refused.stamp != p.stamp {
		e.refused = nil
	}
	l.settle(c, p, e.publishedAt)
}

// publishedOK notes that p was published; the try began at began.
func (l *ledger) publishedOK(c claim, p plan, began time.Time) {
	e := c.entry
	if e.first == 0 {
		e.first = p.stamp.generation
	}
	if e.published != p.stamp {
		e.repeats = 0
	} else {
		e.repeats++
	}
	e.published, e.publishedAt = p.stamp, began
	e.failed, e.failures, e.refused = false, 0, nil
	l.settle(c, p, began)
}

// notPublished notes that publishing for c failed in a way that repeating mends.
func (l *ledger) notPublished(c claim, now time.Time) {
	e := c.entry
	e.failed = true
	e.force, e.resync = true, e.resync || c.resync
	l.finish(e)
	if e.inFlight || e.queued || l.entries[e.key] != e {
		return
	}
	l.due.set(e, now.Add(backoff(retryAfter, e.failures, retryAfterMax)))
	e.failures++
}

// refuse notes that c's state can not be published. A deletion of what the source
// does not have is given up: the agent will ask.
func (l *ledger) refuse(c claim, r *refusal) {
	e := c.entry
	e.failed, e.failures = false, 0
	e.refused = r
	if c.gone != nil && e.gone == c.gone && !e.again {
		e.deleted = true
	}
	l.finish(e)
}

// settle ends c's turn and, when the agent's word is outstanding, schedules the
// next look.
func (l *ledger) settle(c claim, p plan, began time.Time) {
	e := c.entry
	if e.gone == c.gone {
		switch {
		case p.stamp == stamp{}:
		case !p.stamp.deleting:
			e.gone, e.deleteHeard, e.deleted = nil, false, false
		case e.gone != nil && e.gone.meta == nil && !e.again:
			// The answer to a resync: the next request tells whether it arrived.
			e.deleted = true
		}
	}
	l.finish(e)
	if e.inFlight || e.queued || l.entries[e.key] != e || !e.unsettled() {
		return
	}
	l.due.set(e, began.Add(backoff(l.repeatAfter, e.repeats, repeatAfterMax*l.repeatAfter)))
}

// finish lands e and queues it again when it was marked meanwhile.
func (l *ledger) finish(e *entry) {
	e.inFlight = false
	l.pending--
	if e.gone != nil && e.deleted {
		l.drop(e)
		return
	}
	if e.again {
		e.again = false
		l.mark(e)
	}
}

// wakeDue looks at what is due. What failed is tried again; what is unconfirmed is
// published again when its cluster has been heard from since, and parked until it
// is otherwise.
func (l *ledger) wakeDue(now time.Time) {
	for l.connected != 0 {
		e, ok := l.due.pop(now)
		if !ok {
			return
		}
		switch {
		case e.failed || e.unsettled() && e.cluster.heard.After(e.publishedAt):
			e.force = true
			l.mark(e)
		case e.unsettled():
			e.cluster.parked[e] = struct{}{}
			l.parked++
		}
	}
}

// heard notes a message from a cluster. What was parked until then gets another
// while: the cluster may be about to confirm it, or to ask for it. It reports
// whether there was any, and so wakeAt is another time now.
func (l *ledger) heard(name wire.ClusterName, now time.Time) (scheduled bool) {
	c, ok := l.clusters[name]
	if !ok {
		return false
	}
	c.heard = now
	scheduled = len(c.parked) > 0
	for e := range c.parked {
		l.due.set(e, now.Add(l.repeatAfter))
	}
	l.parked -= len(c.parked)
	clear(c.parked)
	return scheduled
}

// holds notes that an agent holds this generation of the work of k.
func (l *ledger) holds(k key, held wire.Generation) {
	e, ok := l.entries[k]
	if !ok || e.gone != nil {
		return
	}
	e.confirmed = max(e.confirmed, held)
	if !e.unsettled() && !e.failed {
		l.rest(e)
	}
}

// took notes that s was taken in; deleting and deleted are what s says of the
// work's deletion.
func (l *ledger) took(k key, s *wire.Status, deleting, deleted bool) {
	e, ok := l.entries[k]
	if !ok {
		return // gone meanwhile
	}
	e.sequence = max(e.sequence, s.Sequence)
	e.confirmed = max(e.confirmed, s.Generation)
	e.deleteHeard = e.deleteHeard || deleting || deleted
	e.deleted = e.deleted || deleted
	if !e.unsettled() && !e.failed {
		l.rest(e)
	}
}

// agentForgot notes the agent's word that it is done with a work that the source
// does not have any more.
func (l *ledger) agentForgot(k key) {
	e, ok := l.entries[k]
	if !ok {
		return
	}
	e.deleteHeard, e.deleted = true, true
	if e.gone != nil && !e.inFlight {
		l.drop(e)
	}
}

// lastSequence is that of the last status taken of the work of k.
func (l *ledger) lastSequence(k key) wire.SequenceID {
	if e, ok := l.entries[k]; ok {
		return e.sequence
	}
	return 0
}

// outOfTurn notes a status that says Deleted of a work that is not being deleted:
// the agent has forgotten what it should hold.
func (l *ledger) outOfTurn(k key, s *wire.Status) {
	e, ok := l.entries[k]
	if !ok {
		return // gone meanwhile
	}
	e.sequence = max(e.sequence, s.Sequence)
	// It holds nothing now: what it said before confirms no publish to come.
	e.confirmed = 0
	l.owed(k, false)
}

// refusalFor is the refusal of the newest state of the work of k, nil for none.
func (l *ledger) refusalFor(k key) *refusal {
	if e, ok := l.entries[k]; ok {
		return e.refused
	}
	return nil
}
