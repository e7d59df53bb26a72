package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/wire"
)

// workKey identifies a work as seen by an agent. The UID alone is not enough, since a cluster can
// claim to hold the UID of another cluster's work.
type workKey struct {
	uid     types.UID
	cluster wire.ClusterName
}

// workRecord is all that is known of a work. It is in one phase, which only the table [transitions]
// changes:
//
//	idle, refused, paused, backing off, awaiting answer, awaiting contact ── wanted ──▶ queued ── taken ──▶ in flight
//	in flight ── settled ──▶ idle
//	in flight ── unanswered ──▶ awaiting answer ── silence ──▶ awaiting contact ── contact ──▶ awaiting answer
//	                            awaiting answer, awaiting contact ── answer ──▶ idle
//	in flight ── failed ──▶ backing off
//	in flight ── denied ──▶ refused
//	in flight ── held ──▶ paused
//	in flight ── again ──▶ queued
//
// What the next attempt is for is its intent. It is forgotten when neither the source nor the agent has
// the work. A hub has one for each of its works: TestSizeOfWorkRecord.
type workRecord struct {
	key     workKey
	cluster *clusterRecord

	phase  phase
	intent intent
	said   word // by the agent about its deletion
	// authoritative: the agent may hold other content of the published generation, or a higher
	// generation. It is so until the agent reports a status of the published generation.
	authoritative bool
	// recorded: the agent has listed it without a version, so it has had a spec of it.
	recorded bool
	// abandoned: while an attempt is in flight, the source has given the work up, or another program has served its cluster.
	// What the attempt was about counts no more.
	abandoned bool

	positions   [setKinds]int32 // owned by workSet
	republishes int32           // of published, on this connection
	failures    int32           // consecutive

	schedule.Timer

	first       wire.Generation // the first one published or confirmed
	published   revision
	publishedAt time.Time
	confirmed   wire.Generation // the highest one that the agent reported
	refused     *refusal        // why the newest state cannot be published
	removed     *removedWork    // set if the source does not have the work

	sequences   Sequences // of the accepted statuses
	signed      int64     // when the newest one was signed, in microseconds; 0: none was
	hash        string    // of the status at hashVersion
	hashVersion string

	contents *specContents // nil: none is known
	digest   workDigest
}

// specContents is what is known of the contents of a work's spec. It is not changed, but replaced: attempts
// have it, too.
type specContents struct {
	hash       string          // of the spec of generation; empty: not known
	generation wire.Generation // of the spec with that hash
	digest     uint64          // of hash
	delta      bool            // the last publish was a spec delta
	wholeUntil time.Time       // the work's specs are not sent as deltas before
}

// content returns what is known of the contents.
func (w *workRecord) content() specContents {
	if w.contents == nil {
		return specContents{}
	}
	return *w.contents
}

// setContent replaces what is known of the contents.
func (w *workRecord) setContent(c specContents) {
	if c != w.content() {
		changed := c // c itself would be allocated in each call
		w.contents = &changed
	}
}

// withHash returns c with the content hash of the spec of the work with this UID and generation, empty if it is
// not known.
func (c specContents) withHash(uid types.UID, hash string, generation wire.Generation) specContents {
	c.hash, c.generation, c.digest = hash, generation, 0
	if hash != "" {
		c.digest = wire.ContentDigest(uid, hash)
	}
	return c
}

// removedWork describes the deletion to publish for a work that the source does not have.
type removedWork struct {
	generation wire.Generation
	deletedAt  *metav1.Time       // nil: the time of the publish
	meta       *metav1.ObjectMeta // nil: the deletion says that the source does not know the work
	unknown    bool               // the source never had the work
	again      bool               // the source has a work with this UID since
}

// word is what the agent has said about the deletion of a work since it last got a spec of it.
//
//	a status says Deleting                                   at least saidDeleting
//	a status says Deleted, after the publish of a deletion   saidDeleted
//	                       after that of a spec, in flight   at least saidDeletedInFlight
//	                       after that of a spec              at least saidDeleting
//	an attempt ends with saidDeletedInFlight                 saidDeleted if it has published a deletion, else saidDeleting
//	a spec is published, and the work was not removed since  saidNothing
//	the deletion of a removed work is refused, or it was
//	unknown and the deletion is published: nothing follows   saidDeleted
//	the agent lists a work that the source does not have     at most saidDeleting
type word uint8

const (
	saidNothing word = iota
	saidDeleting
	// saidDeletedInFlight: it said Deleted after a spec, while an attempt was in flight. If that publishes
	// the deletion, it has answered it.
	saidDeletedInFlight
	saidDeleted
)

// attempt is one attempt to publish work.
type attempt struct {
	work   *workRecord
	before workRecord // as it was at the beginning
}

// action returns the action of an event that publishes r.
func (w *workRecord) action(r revision) wire.Action {
	switch {
	case w.intent == reply:
		return wire.ResyncResponse
	case r.deleting:
		return wire.Delete
	case w.confirmed == 0 && (w.first == 0 || w.first == r.generation):
		return wire.Create
	default:
		return wire.Update
	}
}

// setRemoved sets w.removed, nil if the source has the work.
func (w *workRecord) setRemoved(g *removedWork) {
	w.removed = g
	if g == nil {
		w.cluster.removed.remove(w)
	} else {
		w.cluster.removed.add(w)
	}
}

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

// wholeFor is for how long a work's specs are sent whole after its agent has asked for one. As long
// as it lasts, the agent may be one that cannot use deltas of this work.
const wholeFor = 10 * time.Minute

// specBase returns the content hash of the spec that the agent of w has as far as the source knows, if
// p may be sent as its difference from that one (docs/protocol.md, Deltas); else it is empty.
func (w *workRecord) specBase(p plan, now time.Time) string {
	known := w.content()
	switch {
	case p.spec.IsDeletion() || p.spec.Action != wire.Update || p.spec.Authoritative:
	case w.published == p.revision: // it may have been lost
	case w.published == revision{} || w.published.deleting || known.generation != w.published.generation:
	case now.Before(known.wholeUntil):
	default:
		return known.hash
	}
	return ""
}

// asksWhole records that the agent lists a work, which it lacks perhaps because of a delta.
func (w *workRecord) asksWhole(have *wire.SpecVersion, now time.Time) {
	if c := w.content(); c.delta && have.Generation == 0 {
		c.wholeUntil = now.Add(wholeFor)
		w.setContent(c)
	}
}
