package delivery

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/wire"
)

// deliveryState records for each work which state was published, which one its agent confirmed, and
// when to publish again. It is pure: it does no I/O, reads no clock and starts no goroutines. It is
// not safe for concurrent use; [Engine] guards it with a lock. All operations but connect cost at
// most O(log n).
type deliveryState struct {
	republishAfter time.Duration
	paused         func(wire.ClusterName) bool // clusters that nothing is published to

	works      map[workKey]*workRecord
	clusters   map[wire.ClusterName]*clusterRecord
	swept      time.Time                       // when sweep did something
	roundRobin workqueue.Queue[*clusterRecord] // clusters whose queue is not empty
	due        schedule                        // works to check again later
	// connected is the number of the current connection, 0 for none.
	connected uint64
	lastConn  uint64
	roundTrip roundTrip // from a publish to the first status of it

	inPhase [phases]int // works by phase
}

// pending returns the number of works that are queued or in flight.
func (d *deliveryState) pending() int { return d.inPhase[queued] + d.inPhase[inFlight] }

// unconfirmed returns the number of works that wait until they are confirmed, or tried again.
func (d *deliveryState) unconfirmed() int {
	return d.inPhase[awaitingAnswer] + d.inPhase[awaitingContact] + d.inPhase[backingOff]
}

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

	positions   [setKinds]int32 // owned by workSet
	dueIndex    int32           // owned by schedule
	republishes int32           // of published, on this connection
	failures    int32           // consecutive

	dueAt time.Time

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
type word uint8

const (
	saidNothing word = iota
	saidDeleting
	// saidDeletedInFlight: it said Deleted after a spec, while an attempt was in flight. If that publishes
	// the deletion, it has answered it.
	saidDeletedInFlight
	saidDeleted
)

// attempt is one attempt to publish work, with a copy of its state at the beginning.
type attempt struct {
	work *workRecord
	workRecord
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

func newDeliveryState(repeatAfter time.Duration, held func(wire.ClusterName) bool) *deliveryState {
	return &deliveryState{
		republishAfter: repeatAfter,
		paused:         held,
		works:          make(map[workKey]*workRecord),
		clusters:       make(map[wire.ClusterName]*clusterRecord),
		roundRobin:     workqueue.DefaultQueue[*clusterRecord](),
	}
}

// ensure returns the state of k, which it creates if necessary.
func (d *deliveryState) ensure(k workKey) *workRecord {
	if w, ok := d.works[k]; ok {
		return w
	}
	c := d.cluster(k.cluster)
	w := &workRecord{key: k, cluster: c}
	c.works.add(w)
	d.works[k] = w
	d.inPhase[idle]++
	return w
}

// forget removes w, which must not be in flight.
func (d *deliveryState) forget(w *workRecord) {
	delete(d.works, w.key)
	d.enter(w, idle) // if it was queued, dequeue skips it
	d.inPhase[idle]--
	w.cluster.removed.remove(w)
	w.cluster.works.remove(w)
	d.release(w.cluster)
}

func (d *deliveryState) enterRoundRobin(c *clusterRecord) {
	if !c.inRoundRobin {
		c.inRoundRobin = true
		d.roundRobin.Push(c)
	}
}

// workChanged enqueues k, whose work may have a new state.
func (d *deliveryState) workChanged(k workKey) {
	w := d.ensure(k)
	if w.removed != nil {
		w.removed.again = true
	}
	d.want(w, newest)
}

// publish has at least i published of k.
func (d *deliveryState) publish(k workKey, i intent) { d.want(d.ensure(k), i) }

// reseal enqueues k to be published although its state was published before, or was refused for want
// of a key.
func (d *deliveryState) reseal(k workKey) {
	w := d.ensure(k)
	if w.refused != nil && w.refused.condition.Reason == ReasonNoSealKey {
		w.refused = nil
	}
	d.want(w, repeat)
}

// publishAuthoritative has k published as authoritative. What the agent confirmed before
// does not apply to it.
func (d *deliveryState) publishAuthoritative(k workKey, i intent) {
	w := d.ensure(k)
	w.authoritative, w.confirmed = true, 0
	w.setContent(w.content().withHash(k.uid, "", 0))
	d.want(w, i)
}

// workRemoved handles the removal of the work of k from the source: the state is forgotten if the
// agent has deleted the work, otherwise the deletion is enqueued.
func (d *deliveryState) workRemoved(k workKey, g removedWork) {
	w := d.ensure(k)
	w.setRemoved(&g)
	switch {
	case !w.isDeleted():
		d.want(w, repeat)
	case w.phase != inFlight:
		d.forget(w)
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

// deleteUnknown enqueues a deletion of a work that an agent holds and the source does not have;
// meta is nil if the source does not know it. A removed work keeps the metadata that it had.
func (d *deliveryState) deleteUnknown(k workKey, held wire.Generation, meta *metav1.ObjectMeta) {
	w := d.ensure(k)
	if w.removed == nil {
		w.setRemoved(&removedWork{generation: held, meta: meta, unknown: true})
	}
	w.said = min(w.said, saidDeleting)
	d.want(w, reply)
}

// deleteUnknowns enqueues deletions of works of a cluster that the source does not have. It returns
// how many it left out, because too many of them wait already.
func (d *deliveryState) deleteUnknowns(cluster wire.ClusterName, deletions []unknownDeletion) (postponed int) {
	waiting := 0
	if c, ok := d.clusters[cluster]; ok {
		waiting = c.removed.len()
	}
	for i := range deletions {
		k := workKey{uid: deletions[i].held.UID, cluster: cluster}
		if _, known := d.works[k]; !known {
			if waiting >= maxUnknown {
				postponed++
				continue
			}
			waiting++
		}
		d.deleteUnknown(k, deletions[i].held.Generation, deletions[i].meta)
	}
	return postponed
}

// dequeue begins an attempt for the next work, by round robin over the clusters. It returns false
// if no work is ready or there is no connection.
func (d *deliveryState) dequeue(now time.Time) (attempt, bool) {
	d.requeueDue(now)
	for d.connected != 0 && d.roundRobin.Len() > 0 {
		c := d.roundRobin.Pop()
		c.inRoundRobin = false
		if d.paused(c.name) {
			continue // until resumeCluster
		}
		w := c.queue.Pop()
		if c.queue.Len() > 0 {
			d.enterRoundRobin(c)
		}
		if w.phase != queued {
			continue
		}
		made := attempt{work: w, workRecord: *w}
		d.move(w, taken)
		w.intent = nothing
		return made, true
	}
	return attempt{}, false
}

// resumeCluster puts a cluster that was paused back into the round robin.
func (d *deliveryState) resumeCluster(name wire.ClusterName) {
	if c, ok := d.clusters[name]; ok && c.queue.Len() > 0 {
		d.enterRoundRobin(c)
	}
}

// nextDue returns the earliest time at which dequeue may return another work without any event.
func (d *deliveryState) nextDue() (time.Time, bool) {
	if d.connected == 0 {
		return time.Time{}, false
	}
	return d.due.next()
}

// connect begins a connection with this packet limit and returns its number. It enqueues all works
// whose last publish is not confirmed. It costs O(n) for n works.
func (d *deliveryState) connect(limit int) uint64 {
	d.lastConn++
	d.connected = d.lastConn
	for _, name := range slices.Sorted(maps.Keys(d.clusters)) {
		for _, w := range d.clusters[name].works.list {
			d.connectWork(w, limit)
		}
	}
	return d.connected
}

// connectWork has w published on a new connection if its last publish is not confirmed.
func (d *deliveryState) connectWork(w *workRecord, limit int) {
	lacks := w.intent >= repeat || w.unconfirmed() || w.published.deleting && w.said != saidDeleted
	if w.refused != nil {
		if w.refused.stillRefused(limit) {
			return
		}
		w.refused, lacks = nil, true
	}
	w.republishes, w.failures = 0, 0
	if lacks {
		d.want(w, repeat)
	}
}

// disconnect ends the connection with this number, if it is the current one.
func (d *deliveryState) disconnect(number uint64) {
	if d.connected == number {
		d.connected = 0
	}
}
