package delivery

import (
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Backoff after failed publishes, and the longest pause between republishes.
const (
	minPublishDelay    = time.Second
	maxPublishDelay    = 30 * time.Second
	maxRepublishFactor = 20 // times republishAfter
)

// unconfirmed reports whether w was published and its agent has not confirmed it.
func (w *workState) unconfirmed() bool {
	switch {
	case w.published == revision{}:
		return false
	case w.published.deleting:
		return !w.deleteHeard
	default:
		return w.confirmed < w.published.generation
	}
}

// skipped ends an attempt that published nothing.
func (d *deliveryState) skipped(a attempt, p plan) {
	w := a.work
	if p.known {
		w.published, w.first = p.revision, p.revision.generation
		w.confirmed = max(w.confirmed, p.revision.generation)
	}
	w.paused = false
	if w.refused != nil && w.refused.revision != p.revision {
		w.refused = nil
	}
	d.complete(a, p, w.publishedAt)
}

// pausedBefore ends an attempt that published nothing because the work is paused. Its agent holds at
// least the generation confirmed. The next change of the work, or the next connection, tries again.
func (d *deliveryState) pausedBefore(a attempt, confirmed wire.Generation) {
	w := a.work
	w.paused, w.confirmed = true, max(w.confirmed, confirmed)
	w.force, w.resync = w.force || a.force, w.resync || a.resync
	d.endAttempt(w)
}

// publishSucceeded ends an attempt that published p as sent; it began at began.
func (d *deliveryState) publishSucceeded(a attempt, p plan, began time.Time, sent sentSpec) {
	w := a.work
	c := w.content()
	c.delta = sent.delta
	if sent.contentHash != "" {
		c = c.withHash(w.key.uid, sent.contentHash, p.revision.generation)
	}
	w.setContent(c)
	if w.first == 0 {
		w.first = p.revision.generation
	}
	if w.published != p.revision {
		w.republishes = 0
	} else {
		w.republishes++
	}
	w.published, w.publishedAt = p.revision, began
	if w.answering && p.revision.deleting {
		answered := p.revision
		w.answered = &answered
	}
	w.failed, w.failures, w.refused, w.paused = false, 0, nil, false
	d.complete(a, p, began)
}

// publishFailed ends an attempt that failed and schedules the next one.
func (d *deliveryState) publishFailed(a attempt, now time.Time) {
	w := a.work
	w.failed = true
	w.force, w.resync = true, w.resync || a.resync
	d.endAttempt(w)
	if w.inFlight || w.queued || d.works[w.key] != w {
		return
	}
	d.due.set(w, now.Add(backoff(minPublishDelay, int(w.failures), maxPublishDelay)))
	w.failures++
}

// publishRefused ends an attempt that failed for a reason that a retry cannot change. The deletion
// of a work that the source does not have is dropped: the agent sends another resync request.
func (d *deliveryState) publishRefused(a attempt, r *refusal) {
	w := a.work
	w.failed, w.failures = false, 0
	w.refused = r
	if a.removed != nil && w.removed == a.removed && !w.changedInFlight {
		w.deleted = true
	}
	d.endAttempt(w)
}

// complete ends an attempt and schedules the next check if the agent has not confirmed the work.
func (d *deliveryState) complete(a attempt, p plan, began time.Time) {
	w := a.work
	if w.removed == a.removed {
		switch {
		case p.revision == revision{}:
		case !p.revision.deleting:
			w.setRemoved(nil)
			w.deleteHeard, w.deleted = false, false
		case w.removed != nil && w.removed.unknown && !w.changedInFlight:
			// It answered a resync request: the next request shows whether it arrived.
			w.deleted = true
		}
	}
	d.endAttempt(w)
	if w.inFlight || w.queued || d.works[w.key] != w || !w.unconfirmed() {
		return
	}
	d.due.set(w, began.Add(d.pause(w)))
}

// pause returns how long after its publish an unconfirmed work is published again.
func (d *deliveryState) pause(w *workState) time.Duration {
	return backoff(d.roundTrip.patience(d.republishAfter), int(w.republishes), maxRepublishFactor*d.republishAfter)
}

// endAttempt ends the attempt in flight, and enqueues w again if it changed meanwhile.
func (d *deliveryState) endAttempt(w *workState) {
	w.inFlight, w.answering = false, false
	d.pending--
	if w.isDeleted() {
		d.forget(w)
		if w.again {
			d.workChanged(w.key)
		}
		return
	}
	if w.changedInFlight {
		w.changedInFlight = false
		d.enqueue(w)
	}
}

// requeueDue enqueues the works that are due: those whose last attempt failed, and unconfirmed ones
// whose cluster sent a message since. Other unconfirmed works await contact.
func (d *deliveryState) requeueDue(now time.Time) {
	for d.connected != 0 {
		w := d.due.pop(now)
		if w == nil {
			return
		}
		next := w.publishedAt.Add(d.pause(w))
		switch {
		case !w.failed && w.unconfirmed() && next.After(now): // round trips have become longer
			d.due.set(w, next)
		case w.failed || w.unconfirmed() && w.cluster.heard.After(w.publishedAt):
			w.force = true
			d.enqueue(w)
		case w.unconfirmed():
			w.cluster.awaitingContact[w] = struct{}{}
			d.awaitingContact++
		}
	}
}

// clusterHeard records a message from a cluster. Works that awaited it are scheduled rather than
// enqueued, since the agent may be about to confirm or to request them. It reports whether there
// were any, which changes nextDue.
func (d *deliveryState) clusterHeard(name wire.ClusterName, now time.Time) (scheduled bool) {
	c, ok := d.clusters[name]
	if !ok {
		return false
	}
	c.heard = now
	scheduled = len(c.awaitingContact) > 0
	for w := range c.awaitingContact {
		d.due.set(w, now.Add(d.roundTrip.patience(d.republishAfter)))
	}
	d.awaitingContact -= len(c.awaitingContact)
	clear(c.awaitingContact)
	return scheduled
}

// agentHolds records that the agent holds this generation of k.
func (d *deliveryState) agentHolds(k workKey, held wire.Generation) {
	w, ok := d.works[k]
	if !ok || w.removed != nil {
		return
	}
	d.confirm(w, held)
}

// confirm records that the agent of w has this generation.
func (d *deliveryState) confirm(w *workState, held wire.Generation) {
	w.confirmed = max(w.confirmed, held)
	if !w.unconfirmed() && !w.failed {
		d.unschedule(w)
	}
}

// sessionHeard records that the agent of a cluster has announced a session.
func (d *deliveryState) sessionHeard(name wire.ClusterName, session Session) {
	if c, ok := d.clusters[name]; ok {
		c.sessions = c.sessions.add(session)
	}
}

// accepts records what the agent of a cluster can read.
func (d *deliveryState) accepts(name wire.ClusterName, accepts wire.Accepts) {
	if c, ok := d.clusters[name]; ok {
		c.accepts = accepts
	}
}

// statusReceived reports whether s is older than an accepted status. stored is what the WorkStore
// remembers of those. It must be called before statusAccepted.
func (d *deliveryState) statusReceived(k workKey, s *wire.Status, stored Sequences) (old bool) {
	session := NewSession(s.Session)
	w, ok := d.works[k]
	if !ok {
		return stored.old(session, s.Sequence, false)
	}
	if w.sequences.Newest.ID == 0 {
		w.sequences = stored
	}
	return w.sequences.old(session, s.Sequence, w.cluster.sessions.before(session, w.sequences.Newest.Session))
}

// statusAccepted records an accepted status; deleting and deleted are its conditions.
func (d *deliveryState) statusAccepted(k workKey, s *wire.Status, deleting, deleted bool, now time.Time) {
	w, ok := d.works[k]
	if !ok {
		return // removed meanwhile
	}
	w.sequences = w.sequences.Add(NewSession(s.Session), s.Sequence)
	w.deleteHeard = w.deleteHeard || deleting || deleted
	if deleted {
		w.reportedDeleted()
	}
	if s.Generation == w.published.generation {
		w.authoritative = false
		if w.confirmed < s.Generation && w.republishes == 0 { // otherwise nobody knows which publish it answers
			d.roundTrip = d.roundTrip.with(now.Sub(w.publishedAt))
		}
	}
	d.confirm(w, s.Generation)
}

// agentDeleting records that the agent is deleting a work that the source does not have anymore.
func (d *deliveryState) agentDeleting(k workKey) {
	if w, ok := d.works[k]; ok && w.removed != nil {
		w.deleteHeard = true
		if !w.unconfirmed() && !w.failed {
			d.unschedule(w)
		}
	}
}

// agentDeleted records that the agent has deleted a work that the source does not have anymore.
func (d *deliveryState) agentDeleted(k workKey) {
	w, ok := d.works[k]
	if !ok {
		return
	}
	w.deleteHeard = true
	w.reportedDeleted()
	if w.isDeleted() && !w.inFlight {
		d.forget(w)
	}
}

// reportedDeleted records that the agent reported Deleted. It may do so before the publish of the
// deletion has returned.
func (w *workState) reportedDeleted() {
	w.deleted = w.deleted || !w.specLast()
	w.answering = w.inFlight
}

// isDeleted reports whether neither the source nor the agent has the work any more. A Deleted that came
// during the attempt that published this very deletion answers it: the work may have come again, and
// been deleted again, under the same UID.
func (w *workState) isDeleted() bool {
	if w.removed == nil {
		return false
	}
	return w.deleted || w.answered != nil && *w.answered == w.published && w.answered.generation == w.removed.generation
}

// specLast reports whether the last publish was a spec: an agent that reported Deleted before it
// arrived applies it, and so must get a deletion again.
func (w *workState) specLast() bool {
	return w.published != revision{} && !w.published.deleting
}

// deletedUnexpectedly handles a status with Deleted=True of a work that is not being deleted: the
// agent has forgotten the work, so it is published again.
func (d *deliveryState) deletedUnexpectedly(k workKey, s *wire.Status) {
	w, ok := d.works[k]
	if !ok {
		return // removed meanwhile
	}
	w.sequences = w.sequences.Add(NewSession(s.Session), s.Sequence)
	// Earlier confirmations do not apply to the publishes that follow.
	w.confirmed = 0
	d.forcePublish(k, false)
}

// isRemoved reports whether the source has removed the work of k, or deletes it as one that it never had.
func (d *deliveryState) isRemoved(k workKey) bool {
	w, ok := d.works[k]
	return ok && w.removed != nil
}

// get returns a copy of the state of k, the zero state if there is none.
func (d *deliveryState) get(k workKey) workState {
	if w, ok := d.works[k]; ok {
		return *w
	}
	return workState{}
}

// backoff returns first doubled n times, at most limit.
func backoff(first time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && first < limit; n-- {
		first *= 2
	}
	return min(first, limit)
}
