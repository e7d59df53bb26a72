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

// attemptEnded is the end of an attempt, which began at began and was planned.
type attemptEnded struct {
	*attempt
	plan   plan
	began  time.Time
	paused bool            // nothing was published, because the work is paused
	holds  wire.Generation // that the agent of a paused work has confirmed according to its status
	// sent is what was published, if the plan has a spec and err is nil.
	sent sentSpec
	err  error
	// refused is why a retry cannot succeed, nil: it may.
	refused *refusal
	name    string // of the work, empty if the source does not have it
	owner   string // its replica set, empty: none
}

func (in *attemptEnded) apply(d *core, now time.Time) {
	w := in.work
	w.cluster.underWay--
	defer d.release(w.cluster)
	switch {
	case w.abandoned:
		w.abandoned = false
		if w.intent == nothing {
			d.forget(w)
			return
		}
		d.endAttempt(w, again, nothing)
	case in.paused:
		// The next change of the work, or the next connection, tries again.
		w.confirmed = max(w.confirmed, in.holds)
		d.endAttempt(w, held, in.before.intent)
	case in.plan.spec == nil:
		d.skipped(w, in)
	case in.err == nil:
		d.published(w, in)
	case in.refused != nil:
		w.failures, w.refused = 0, in.refused
		if in.name != "" {
			storeWanted{w.key, in.owner, statusUpdate{name: in.name, refused: &in.refused.condition}}.apply(d, now)
		}
		w.follow(in)
		if in.before.removed != nil && w.removed == in.before.removed && w.intent == nothing {
			w.said = saidDeleted // the deletion is dropped: the agent sends another resync request
		}
		d.endAttempt(w, denied, nothing)
	default:
		if d.endAttempt(w, failed, max(in.before.intent, repeat)); w.phase == backingOff {
			d.due.Set(w, now.Add(backoff(minPublishDelay, int(w.failures), maxPublishDelay)))
			w.failures++
		}
	}
}

// skipped ends an attempt whose plan has no spec.
func (d *core) skipped(w *workRecord, in *attemptEnded) {
	if in.plan.known {
		w.published, w.first = in.plan.revision, in.plan.revision.generation
		w.confirmed = max(w.confirmed, in.plan.revision.generation)
	}
	if w.refused != nil && w.refused.revision != in.plan.revision {
		w.refused = nil
	}
	since := w.publishedAt
	if in.plan.revision == (revision{}) {
		since = in.began
	}
	d.complete(w, in, since)
}

// published ends an attempt that published its plan.
func (d *core) published(w *workRecord, in *attemptEnded) {
	revision, c := in.plan.revision, w.content()
	c.delta = in.sent.delta
	if in.sent.contentHash != "" {
		c = c.withHash(w.key.uid, in.sent.contentHash, revision.generation)
	}
	w.setContent(c)
	if w.first == 0 {
		w.first = revision.generation
	}
	if w.published != revision {
		w.republishes = 0
	} else {
		w.republishes++
	}
	w.published, w.publishedAt = revision, in.began
	if w.said == saidDeletedInFlight && revision.deleting {
		w.said = saidDeleted
	}
	w.failures, w.refused = 0, nil
	w.follow(in)
	d.complete(w, in, in.began)
}

// follow has the publish begin that must follow the one of in, unless the source has removed the work since.
func (w *workRecord) follow(in *attemptEnded) {
	if in.plan.more && (w.removed == nil || w.removed == in.before.removed) {
		w.intent = max(w.intent, newest)
	}
}

// complete ends an attempt that did not fail. If the agent has to confirm what was published, and when, the
// work is looked at again.
func (d *core) complete(w *workRecord, in *attemptEnded, publishedAt time.Time) {
	if w.removed == in.before.removed {
		switch {
		case in.plan.revision == revision{}:
		case !in.plan.revision.deleting:
			w.setRemoved(nil)
			w.said = saidNothing
		case w.removed != nil && w.removed.unknown && w.intent == nothing:
			// It answered a resync request: the next request shows whether it arrived.
			w.said = saidDeleted
		}
	}
	if d.endAttempt(w, w.rest(), nothing); w.phase == awaitingAnswer {
		d.due.Set(w, publishedAt.Add(d.pause(w)))
	}
}

// pause returns how long after its publish an unconfirmed work is published again.
func (d *core) pause(w *workRecord) time.Duration {
	return backoff(d.roundTrip.patience(d.republishAfter), int(w.republishes), maxRepublishFactor*d.republishAfter)
}

// endAttempt ends the attempt in flight by t, unless something is wanted since. left is what it leaves
// to the next one.
func (d *core) endAttempt(w *workRecord, t trigger, left intent) {
	if w.said == saidDeletedInFlight {
		w.said = saidDeleting
	}
	if w.isDeleted() {
		d.forget(w)
		if w.removed.again {
			workChanged{w.key}.apply(d, time.Time{})
		}
		return
	}
	if w.intent != nothing {
		t = again
	}
	w.intent = max(w.intent, left)
	d.move(w, t)
}

// backoff returns first doubled n times, at most limit.
func backoff(first time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && first < limit; n-- {
		first *= 2
	}
	return min(first, limit)
}
