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
func (w *workRecord) unconfirmed() bool {
	switch {
	case w.published == revision{}:
		return false
	case w.published.deleting:
		return w.said == saidNothing
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
	if w.refused != nil && w.refused.revision != p.revision {
		w.refused = nil
	}
	d.complete(a, p, w.publishedAt)
}

// pausedBefore ends an attempt that published nothing because the work is paused. Its agent holds at
// least the generation confirmed. The next change of the work, or the next connection, tries again.
func (d *deliveryState) pausedBefore(a attempt, confirmed wire.Generation) {
	a.work.confirmed = max(a.work.confirmed, confirmed)
	d.endAttempt(a.work, held, a.intent)
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
	if w.said == saidDeletedInFlight && p.revision.deleting {
		w.said = saidDeleted
	}
	w.failures, w.refused = 0, nil
	d.complete(a, p, began)
}

// publishFailed ends an attempt that failed and schedules the next one.
func (d *deliveryState) publishFailed(a attempt, now time.Time) {
	w := a.work
	if d.endAttempt(w, failed, max(a.intent, repeat)); w.phase == backingOff {
		d.due.set(w, now.Add(backoff(minPublishDelay, int(w.failures), maxPublishDelay)))
		w.failures++
	}
}

// publishRefused ends an attempt that failed for a reason that a retry cannot change. The deletion
// of a work that the source does not have is dropped: the agent sends another resync request.
func (d *deliveryState) publishRefused(a attempt, r *refusal) {
	w := a.work
	w.failures, w.refused = 0, r
	if a.removed != nil && w.removed == a.removed && w.intent == nothing {
		w.said = saidDeleted
	}
	d.endAttempt(w, denied, nothing)
}

// complete ends an attempt and schedules the next check if the agent has not confirmed the work.
func (d *deliveryState) complete(a attempt, p plan, began time.Time) {
	w := a.work
	if w.removed == a.removed {
		switch {
		case p.revision == revision{}:
		case !p.revision.deleting:
			w.setRemoved(nil)
			w.said = saidNothing
		case w.removed != nil && w.removed.unknown && w.intent == nothing:
			// It answered a resync request: the next request shows whether it arrived.
			w.said = saidDeleted
		}
	}
	if d.endAttempt(w, w.rest(), nothing); w.phase == awaitingAnswer {
		d.due.set(w, began.Add(d.pause(w)))
	}
}

// rest returns what an attempt that did not fail leaves to do.
func (w *workRecord) rest() trigger {
	switch {
	case w.refused != nil:
		return denied
	case w.unconfirmed():
		return unanswered
	default:
		return settled
	}
}

// pause returns how long after its publish an unconfirmed work is published again.
func (d *deliveryState) pause(w *workRecord) time.Duration {
	return backoff(d.roundTrip.patience(d.republishAfter), int(w.republishes), maxRepublishFactor*d.republishAfter)
}

// endAttempt ends the attempt in flight by t, unless something is wanted since. left is what it leaves
// to the next one.
func (d *deliveryState) endAttempt(w *workRecord, t trigger, left intent) {
	if w.said == saidDeletedInFlight {
		w.said = saidDeleting
	}
	if w.isDeleted() {
		d.forget(w)
		if w.removed.again {
			d.workChanged(w.key)
		}
		return
	}
	if w.intent != nothing {
		t = again
	}
	w.intent = max(w.intent, left)
	d.move(w, t)
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
		case w.phase == awaitingAnswer && next.After(now): // round trips have become longer
			d.due.set(w, next)
		case w.phase == awaitingAnswer && !w.cluster.heard.After(w.publishedAt):
			d.move(w, silence)
		default:
			d.want(w, repeat)
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
	scheduled = c.silent.len() > 0
	for c.silent.len() > 0 {
		w := c.silent.list[0]
		d.move(w, contact)
		d.due.set(w, now.Add(d.roundTrip.patience(d.republishAfter)))
	}
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
func (d *deliveryState) confirm(w *workRecord, held wire.Generation) {
	w.confirmed = max(w.confirmed, held)
	d.answered(w)
}

// answered ends the wait for an answer if the agent of w has confirmed what was published.
func (d *deliveryState) answered(w *workRecord) {
	if !w.unconfirmed() {
		d.move(w, answer)
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
	if deleting {
		w.said = max(w.said, saidDeleting)
	}
	if deleted {
		w.saysDeleted()
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
		w.said = max(w.said, saidDeleting)
		d.answered(w)
	}
}

// agentDeleted records that the agent has deleted a work that the source does not have anymore.
func (d *deliveryState) agentDeleted(k workKey) {
	w, ok := d.works[k]
	if !ok {
		return
	}
	w.saysDeleted()
	if w.isDeleted() && w.phase != inFlight {
		d.forget(w)
		return
	}
	d.answered(w)
}

// saysDeleted records that the agent reported Deleted. It may do so before the publish of the deletion
// has returned.
func (w *workRecord) saysDeleted() {
	switch {
	case !w.specLast():
		w.said = saidDeleted
	case w.phase == inFlight:
		w.said = max(w.said, saidDeletedInFlight)
	default:
		w.said = max(w.said, saidDeleting)
	}
}

// isDeleted reports whether neither the source nor the agent has the work any more.
func (w *workRecord) isDeleted() bool { return w.removed != nil && w.said == saidDeleted }

// specLast reports whether the last publish was a spec: an agent that reported Deleted before it
// arrived applies it, and so must get a deletion again.
func (w *workRecord) specLast() bool {
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
	d.want(w, repeat)
}

// isRemoved reports whether the source has removed the work of k, or deletes it as one that it never had.
func (d *deliveryState) isRemoved(k workKey) bool {
	w, ok := d.works[k]
	return ok && w.removed != nil
}

// get returns a copy of the state of k, the zero state if there is none.
func (d *deliveryState) get(k workKey) workRecord {
	if w, ok := d.works[k]; ok {
		return *w
	}
	return workRecord{}
}

// backoff returns first doubled n times, at most limit.
func backoff(first time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && first < limit; n-- {
		first *= 2
	}
	return min(first, limit)
}
