package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Pauses between tries that failed, and the longest one between repeats.
const (
	publishRetryMin    = time.Second
	publishRetryMax    = 30 * time.Second
	maxRepublishFactor = 20 // times repeatAfter
)

// unsettled reports that e was published and that its agent has not said so.
func (e *workState) unconfirmed() bool {
	switch {
	case e.published == revision{}:
		return false
	case e.published.deleting:
		return !e.deleteHeard
	default:
		return e.confirmed < e.published.generation
	}
}

// landed notes that c's turn is over, with nothing to publish for p.
func (l *deliveryState) skipped(c attempt, p plan) {
	e := c.work
	if p.known {
		e.published, e.first = p.revision, p.revision.generation
		e.confirmed = max(e.confirmed, p.revision.generation)
	}
	if e.refused != nil && e.refused.revision != p.revision {
		e.refused = nil
	}
	l.complete(c, p, e.publishedAt)
}

// publishedOK notes that p was published; the try began at began.
func (l *deliveryState) publishSucceeded(c attempt, p plan, began time.Time) {
	e := c.work
	if e.first == 0 {
		e.first = p.revision.generation
	}
	if e.published != p.revision {
		e.republishes = 0
	} else {
		e.republishes++
	}
	e.published, e.publishedAt = p.revision, began
	e.failed, e.failures, e.refused = false, 0, nil
	l.complete(c, p, began)
}

// notPublished notes that publishing for c failed in a way that repeating mends.
func (l *deliveryState) publishFailed(c attempt, now time.Time) {
	e := c.work
	e.failed = true
	e.force, e.resync = true, e.resync || c.resync
	l.endAttempt(e)
	if e.inFlight || e.queued || l.works[e.key] != e {
		return
	}
	l.due.set(e, now.Add(backoff(publishRetryMin, e.failures, publishRetryMax)))
	e.failures++
}

// refuse notes that c's state can not be published. A deletion of what the source
// does not have is given up: the agent will ask.
func (l *deliveryState) publishRefused(c attempt, r *refusal) {
	e := c.work
	e.failed, e.failures = false, 0
	e.refused = r
	if c.removed != nil && e.removed == c.removed && !e.changedInFlight {
		e.deleted = true
	}
	l.endAttempt(e)
}

// settle ends c's turn and, when the agent's word is outstanding, schedules the
// next look.
func (l *deliveryState) complete(c attempt, p plan, began time.Time) {
	e := c.work
	if e.removed == c.removed {
		switch {
		case p.revision == revision{}:
		case !p.revision.deleting:
			e.removed, e.deleteHeard, e.deleted = nil, false, false
		case e.removed != nil && e.removed.meta == nil && !e.changedInFlight:
			// The answer to a resync: the next request tells whether it arrived.
			e.deleted = true
		}
	}
	l.endAttempt(e)
	if e.inFlight || e.queued || l.works[e.key] != e || !e.unconfirmed() {
		return
	}
	l.due.set(e, began.Add(backoff(l.republishAfter, e.republishes, maxRepublishFactor*l.republishAfter)))
}

// finish lands e and queues it again when it was marked meanwhile.
func (l *deliveryState) endAttempt(e *workState) {
	e.inFlight = false
	l.pending--
	if e.removed != nil && e.deleted {
		l.forget(e)
		return
	}
	if e.changedInFlight {
		e.changedInFlight = false
		l.enqueue(e)
	}
}

// wakeDue looks at what is due. What failed is tried again; what is unconfirmed is
// published again when its cluster has been heard from since, and parked until it
// is otherwise.
func (l *deliveryState) requeueDue(now time.Time) {
	for l.connected != 0 {
		e, ok := l.due.pop(now)
		if !ok {
			return
		}
		switch {
		case e.failed || e.unconfirmed() && e.cluster.heard.After(e.publishedAt):
			e.force = true
			l.enqueue(e)
		case e.unconfirmed():
			e.cluster.awaitingContact[e] = struct{}{}
			l.awaitingContact++
		}
	}
}

// heard notes a message from a cluster. What was parked until then gets another
// while: the cluster may be about to confirm it, or to ask for it. It reports
// whether there was any, and so wakeAt is another time now.
func (l *deliveryState) clusterHeard(name wire.ClusterName, now time.Time) (scheduled bool) {
	c, ok := l.clusters[name]
	if !ok {
		return false
	}
	c.heard = now
	scheduled = len(c.awaitingContact) > 0
	for e := range c.awaitingContact {
		l.due.set(e, now.Add(l.republishAfter))
	}
	l.awaitingContact -= len(c.awaitingContact)
	clear(c.awaitingContact)
	return scheduled
}

// holds notes that an agent holds this generation of the work of k.
func (l *deliveryState) agentHolds(k workKey, held wire.Generation) {
	e, ok := l.works[k]
	if !ok || e.removed != nil {
		return
	}
	e.confirmed = max(e.confirmed, held)
	if !e.unconfirmed() && !e.failed {
		l.unschedule(e)
	}
}

// took notes that s was taken in; deleting and deleted are what s says of the
// work's deletion.
func (l *deliveryState) statusAccepted(k workKey, s *wire.Status, deleting, deleted bool) {
	e, ok := l.works[k]
	if !ok {
		return // gone meanwhile
	}
	e.sequence = max(e.sequence, s.Sequence)
	e.confirmed = max(e.confirmed, s.Generation)
	e.deleteHeard = e.deleteHeard || deleting || deleted
	e.deleted = e.deleted || deleted
	if !e.unconfirmed() && !e.failed {
		l.unschedule(e)
	}
}

// agentForgot notes the agent's word that it is done with a work that the source
// does not have any more.
func (l *deliveryState) agentDeleted(k workKey) {
	e, ok := l.works[k]
	if !ok {
		return
	}
	e.deleteHeard, e.deleted = true, true
	if e.removed != nil && !e.inFlight {
		l.forget(e)
	}
}

// lastSequence is that of the last status taken of the work of k.
func (l *deliveryState) lastSequence(k workKey) wire.SequenceID {
	if e, ok := l.works[k]; ok {
		return e.sequence
	}
	return 0
}

// outOfTurn notes a status that says Deleted of a work that is not being deleted:
// the agent has forgotten what it should hold.
func (l *deliveryState) deletedUnexpectedly(k workKey, s *wire.Status) {
	e, ok := l.works[k]
	if !ok {
		return // gone meanwhile
	}
	e.sequence = max(e.sequence, s.Sequence)
	// It holds nothing now: what it said before confirms no publish to come.
	e.confirmed = 0
	l.forcePublish(k, false)
}

// refusalFor is the refusal of the newest state of the work of k, nil for none.
func (l *deliveryState) refusalFor(k workKey) *refusal {
	if e, ok := l.works[k]; ok {
		return e.refused
	}
	return nil
}
