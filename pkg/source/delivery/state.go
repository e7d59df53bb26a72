package delivery

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/wire"
)

// ledger is what a Link knows of what its agents know: for each work what was
// published, what was confirmed, and when to try again. It decides and does
// nothing: no I/O, no clock, no goroutines. Its owner guards it by a lock. All
// but connect cost O(log n) at most.
type deliveryState struct {
	republishAfter time.Duration
	paused         func(wire.ClusterName) bool // clusters that get no turns

	works      map[workKey]*workState
	clusters   map[wire.ClusterName]*clusterState
	roundRobin fifo[*clusterState]  // clusters whose queue is not empty
	due        schedule[*workState] // entries to look at again, at a time
	// connected is the number of the connection that stands, 0 for none.
	connected uint64
	lastConn  uint64

	pending         int // entries queued or in flight
	awaitingContact int // entries that wait for their cluster to be heard from
}

// key names a work as an agent sees it. A cluster can claim to hold a UID of
// another cluster's work, so the UID alone will not do.
type workKey struct {
	uid     types.UID
	cluster wire.ClusterName
}

// cluster is what the ledger knows of a cluster that has entries.
type clusterState struct {
	name            wire.ClusterName
	works           int
	heard           time.Time // when a message last came from it
	queue           fifo[*workState]
	inRoundRobin    bool
	awaitingContact map[*workState]struct{}
}

// entry is what the ledger knows of a work. It is queued, in flight, or neither;
// what is in flight is never queued.
type workState struct {
	key     workKey
	cluster *clusterState

	queued, inFlight bool
	changedInFlight  bool // marked while in flight
	force            bool // publish even what was published already
	resync           bool // as the answer to a resync request

	first       wire.Generation // first one published or confirmed
	published   revision
	publishedAt time.Time
	confirmed   wire.Generation // highest that the agent spoke of
	deleteHeard bool            // the agent has said that it is deleting the work
	deleted     bool            // and that it is done
	republishes int             // of published, on this connection
	failures    int             // in a row
	failed      bool            // the last try failed
	refused     *refusal        // the newest state can not be published
	removed     *removedWork    // the source does not have the work (any more)

	sequence    wire.SequenceID // of the last status taken
	hash        string          // of the status at hashVersion
	hashVersion string
}

// goneWork is what is left of a work that a deletion is still owed for.
type removedWork struct {
	generation wire.Generation
	deletedAt  *metav1.Time       // nil: now
	meta       *metav1.ObjectMeta // nil: the source never had it
}

// claim is an entry whose turn it is, as it was at that moment.
type attempt struct {
	work *workState
	workKey
	force, resync bool
	first         wire.Generation
	published     revision
	confirmed     wire.Generation
	deleted       bool
	refused       *refusal
	removed       *removedWork
}

// action is the one under which s is published.
func (c *attempt) action(s revision) wire.Action {
	switch {
	case c.resync:
		return wire.ResyncResponse
	case s.deleting:
		return wire.Delete
	case c.confirmed == 0 && (c.first == 0 || c.first == s.generation):
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
	}
}

// entryOf gives the entry of k, a new one if need be.
func (l *deliveryState) ensure(k workKey) *workState {
	if e, ok := l.works[k]; ok {
		return e
	}
	c, ok := l.clusters[k.cluster]
	if !ok {
		c = &clusterState{name: k.cluster, awaitingContact: make(map[*workState]struct{})}
		l.clusters[k.cluster] = c
	}
	c.works++
	e := &workState{key: k, cluster: c}
	l.works[k] = e
	return e
}

// drop forgets e, which must not be in flight.
func (l *deliveryState) forget(e *workState) {
	delete(l.works, e.key)
	l.unschedule(e)
	if e.queued {
		e.queued = false // the queue skips it
		l.pending--
	}
	if e.cluster.works--; e.cluster.works == 0 {
		delete(l.clusters, e.cluster.name)
	}
}

// mark queues e, or has it queued when it lands.
func (l *deliveryState) enqueue(e *workState) {
	switch {
	case e.inFlight:
		e.changedInFlight = true
	case !e.queued:
		e.queued = true
		l.pending++
		e.cluster.queue.push(e)
		if !e.cluster.inRoundRobin {
			e.cluster.inRoundRobin = true
			l.roundRobin.push(e.cluster)
		}
	}
}

// changed notes that the work of k may have a new state.
func (l *deliveryState) workChanged(k workKey) { l.enqueue(l.ensure(k)) }

// owed notes that the work of k must be published whatever was published before.
func (l *deliveryState) forcePublish(k workKey, resync bool) {
	e := l.ensure(k)
	e.force = true
	e.resync = e.resync || resync
	l.enqueue(e)
}

// vanished notes that the source no longer has the work of k. What its agent has
// deleted is forgotten; for the rest a deletion is owed.
func (l *deliveryState) workRemoved(k workKey, g removedWork) {
	e := l.ensure(k)
	e.removed = &g
	if e.deleted {
		if !e.inFlight {
			l.forget(e)
		}
		return
	}
	e.force = true
	l.enqueue(e)
}

// answerGone owes a deletion for an id that an agent holds and the source does
// not have.
func (l *deliveryState) deleteUnknown(k workKey, held wire.Generation) {
	e := l.ensure(k)
	if e.removed == nil {
		e.removed = &removedWork{generation: held}
	}
	e.deleted = false
	e.force, e.resync = true, true
	l.enqueue(e)
}

// next claims the entry whose turn it is. There are turns only while connected.
func (l *deliveryState) dequeue(now time.Time) (attempt, bool) {
	l.requeueDue(now)
	for l.connected != 0 {
		c, ok := l.roundRobin.pop()
		if !ok {
			break
		}
		if l.paused(c.name) {
			c.inRoundRobin = false // until it is released
			continue
		}
		e, _ := c.queue.pop()
		if c.inRoundRobin = c.queue.len() > 0; c.inRoundRobin {
			l.roundRobin.push(c)
		}
		if e == nil || !e.queued {
			continue
		}
		e.queued, e.inFlight = false, true
		l.unschedule(e)
		made := attempt{
			work: e, workKey: e.key, force: e.force, resync: e.resync, first: e.first, published: e.published,
			confirmed: e.confirmed, deleted: e.deleted, refused: e.refused, removed: e.removed,
		}
		e.force, e.resync = false, false
		return made, true
	}
	return attempt{}, false
}

// released notes that a cluster may be held no more.
func (l *deliveryState) resumeCluster(name wire.ClusterName) {
	c, ok := l.clusters[name]
	if ok && !c.inRoundRobin && c.queue.len() > 0 {
		c.inRoundRobin = true
		l.roundRobin.push(c)
	}
}

// wakeAt is the earliest time at which next may have more by time alone.
func (l *deliveryState) nextDue() (time.Time, bool) {
	if l.connected == 0 {
		return time.Time{}, false
	}
	return l.due.next()
}

// rest takes e off the schedule and out of its cluster's parking place.
func (l *deliveryState) unschedule(e *workState) {
	l.due.remove(e)
	if _, ok := e.cluster.awaitingContact[e]; ok {
		delete(e.cluster.awaitingContact, e)
		l.awaitingContact--
	}
}

// connect begins a connection with this packet limit and gives its number. What
// is not known to have arrived is owed again. It costs O(n), once a connect.
func (l *deliveryState) connect(limit int) uint64 {
	l.lastConn++
	l.connected = l.lastConn
	for _, e := range l.works {
		if e.refused != nil {
			if e.refused.stillRefused(limit) {
				continue
			}
			e.refused = nil
			e.force = true
		}
		e.republishes, e.failures = 0, 0
		if e.force || e.failed || e.unconfirmed() || e.published.deleting && !e.deleted {
			e.force = true
			l.enqueue(e)
		}
	}
	return l.connected
}

// disconnect ends the connection with this number, unless another one stands.
func (l *deliveryState) disconnect(number uint64) {
	if l.connected == number {
		l.connected = 0
	}
}
