package delivery

import (
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

	works      map[workKey]*workState
	clusters   map[wire.ClusterName]*clusterState
	roundRobin workqueue.Queue[*clusterState] // clusters whose queue is not empty
	due        schedule                       // works to check again later
	// connected is the number of the current connection, 0 for none.
	connected uint64
	lastConn  uint64
	roundTrip roundTrip // from a publish to the first status of it

	pending         int // works that are queued or in flight
	awaitingContact int // works that wait for a message from their cluster
}

// workKey identifies a work as seen by an agent. The UID alone is not enough, since a cluster can
// claim to hold the UID of another cluster's work.
type workKey struct {
	uid     types.UID
	cluster wire.ClusterName
}

// clusterState is the state of a cluster that has works.
type clusterState struct {
	name            wire.ClusterName
	works           int
	heard           time.Time // of the last message from the cluster
	sessions        sessionOrder
	accepts         wire.Accepts            // of its agent, as its last event says
	removed         map[*workState]struct{} // those with workState.removed
	queue           workqueue.Queue[*workState]
	inRoundRobin    bool
	awaitingContact map[*workState]struct{}
}

// workState is the state of a work. A work is queued, in flight, or neither, never both. A hub has one for each
// of its works: TestSizeOfWorkState.
type workState struct {
	key     workKey
	cluster *clusterState

	queued, inFlight bool
	changedInFlight  bool // enqueued again when the attempt ends
	force            bool // publish even the state that was published last
	// authoritative: the agent may hold other content of the published generation, or a higher
	// generation. It is so until the agent reports a status of the published generation.
	authoritative bool
	resync        bool // publish as the answer to a resync request
	// paused: the last attempt published nothing, see Config.WorkPaused.
	paused      bool
	deleteHeard bool // the agent reported that it is deleting the work
	deleted     bool // the agent reported Deleted
	answering   bool // it did during the attempt in flight, which it may answer
	failed      bool // the last attempt failed
	again       bool // a work that was removed: the source has one with this UID since

	dueIndex    int32 // owned by schedule
	republishes int32 // of published, on this connection
	failures    int32 // consecutive

	dueAt time.Time

	first       wire.Generation // the first one published or confirmed
	published   revision
	publishedAt time.Time
	confirmed   wire.Generation // the highest one that the agent reported
	answered    *revision       // the deletion that it answered while it was in flight
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
func (w *workState) content() specContents {
	if w.contents == nil {
		return specContents{}
	}
	return *w.contents
}

// setContent replaces what is known of the contents.
func (w *workState) setContent(c specContents) {
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
}

// attempt is one attempt to publish work, with a copy of its state at the beginning.
type attempt struct {
	work *workState
	workState
}

// action returns the action of an event that publishes r.
func (w *workState) action(r revision) wire.Action {
	switch {
	case w.resync:
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
		works:          make(map[workKey]*workState),
		clusters:       make(map[wire.ClusterName]*clusterState),
		roundRobin:     workqueue.DefaultQueue[*clusterState](),
	}
}

// ensure returns the state of k, which it creates if necessary.
func (d *deliveryState) ensure(k workKey) *workState {
	if w, ok := d.works[k]; ok {
		return w
	}
	c, ok := d.clusters[k.cluster]
	if !ok {
		c = &clusterState{
			name:            k.cluster,
			queue:           workqueue.DefaultQueue[*workState](),
			awaitingContact: make(map[*workState]struct{}),
			removed:         make(map[*workState]struct{}),
		}
		d.clusters[k.cluster] = c
	}
	c.works++
	w := &workState{key: k, cluster: c}
	d.works[k] = w
	return w
}

// forget removes w, which must not be in flight.
func (d *deliveryState) forget(w *workState) {
	delete(d.works, w.key)
	delete(w.cluster.removed, w)
	d.unschedule(w)
	if w.queued {
		w.queued = false // dequeue skips it
		d.pending--
	}
	if w.cluster.works--; w.cluster.works == 0 {
		delete(d.clusters, w.cluster.name)
	}
}

// enqueue queues w, or has it queued when the attempt in flight ends.
func (d *deliveryState) enqueue(w *workState) {
	switch {
	case w.inFlight:
		w.changedInFlight = true
	case !w.queued:
		w.queued = true
		d.pending++
		w.cluster.queue.Push(w)
		d.enterRoundRobin(w.cluster)
	}
}

func (d *deliveryState) enterRoundRobin(c *clusterState) {
	if !c.inRoundRobin {
		c.inRoundRobin = true
		d.roundRobin.Push(c)
	}
}

// workChanged enqueues k, whose work may have a new state.
func (d *deliveryState) workChanged(k workKey) {
	w := d.ensure(k)
	w.again = w.removed != nil
	d.enqueue(w)
}

// forcePublish enqueues k to be published even if its state was published before.
func (d *deliveryState) forcePublish(k workKey, resync bool) {
	w := d.ensure(k)
	w.force = true
	w.resync = w.resync || resync
	d.enqueue(w)
}

// reseal enqueues k to be published although its state was published before, or was refused for want
// of a key.
func (d *deliveryState) reseal(k workKey) {
	w := d.ensure(k)
	if w.refused != nil && w.refused.condition.Reason == ReasonNoSealKey {
		w.refused = nil
	}
	w.force = true
	d.enqueue(w)
}

// forceAuthoritative enqueues k to be published as authoritative. What the agent confirmed before
// does not apply to it.
func (d *deliveryState) forceAuthoritative(k workKey, resync bool) {
	w := d.ensure(k)
	w.authoritative, w.confirmed = true, 0
	w.setContent(w.content().withHash(k.uid, "", 0))
	d.forcePublish(k, resync)
}

// workRemoved handles the removal of the work of k from the source: the state is forgotten if the
// agent has deleted the work, otherwise the deletion is enqueued.
func (d *deliveryState) workRemoved(k workKey, g removedWork) {
	w := d.ensure(k)
	w.setRemoved(&g)
	w.again = false
	if w.isDeleted() {
		if !w.inFlight {
			d.forget(w)
		}
		return
	}
	w.force = true
	d.enqueue(w)
}

// setRemoved sets w.removed, nil if the source has the work.
func (w *workState) setRemoved(g *removedWork) {
	w.removed = g
	if g == nil {
		delete(w.cluster.removed, w)
	} else {
		w.cluster.removed[w] = struct{}{}
	}
}

// deleteUnknown enqueues a deletion of a work that an agent holds and the source does not have;
// meta is nil if the source does not know it. A removed work keeps the metadata that it had.
func (d *deliveryState) deleteUnknown(k workKey, held wire.Generation, meta *metav1.ObjectMeta) {
	w := d.ensure(k)
	if w.removed == nil {
		w.setRemoved(&removedWork{generation: held, meta: meta, unknown: true})
	}
	w.deleted = false
	w.force, w.resync = true, true
	d.enqueue(w)
}

// deleteUnknowns enqueues deletions of works of a cluster that the source does not have. It returns
// how many it left out, because too many of them wait already.
func (d *deliveryState) deleteUnknowns(cluster wire.ClusterName, deletions []unknownDeletion) (postponed int) {
	waiting := 0
	if c, ok := d.clusters[cluster]; ok {
		waiting = len(c.removed)
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
		if !w.queued {
			continue
		}
		w.queued, w.inFlight = false, true
		d.unschedule(w)
		made := attempt{work: w, workState: *w}
		w.force, w.resync = false, false
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

// unschedule removes w from the schedule and from the works that await contact.
func (d *deliveryState) unschedule(w *workState) {
	d.due.remove(w)
	if _, ok := w.cluster.awaitingContact[w]; ok {
		delete(w.cluster.awaitingContact, w)
		d.awaitingContact--
	}
}

// connect begins a connection with this packet limit and returns its number. It enqueues all works
// whose last publish is not confirmed. It costs O(n) for n works.
func (d *deliveryState) connect(limit int) uint64 {
	d.lastConn++
	d.connected = d.lastConn
	for _, w := range d.works {
		if w.refused != nil {
			if w.refused.stillRefused(limit) {
				continue
			}
			w.refused = nil
			w.force = true
		}
		w.republishes, w.failures = 0, 0
		if w.force || w.failed || w.unconfirmed() || w.published.deleting && !w.deleted {
			w.force = true
			d.enqueue(w)
		}
	}
	return d.connected
}

// disconnect ends the connection with this number, if it is the current one.
func (d *deliveryState) disconnect(number uint64) {
	if d.connected == number {
		d.connected = 0
	}
}
