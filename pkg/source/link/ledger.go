package link

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
type ledger struct {
	repeatAfter time.Duration
	held        func(wire.ClusterName) bool // clusters that get no turns

	entries  map[key]*entry
	clusters map[wire.ClusterName]*cluster
	turns    fifo[*cluster]   // clusters whose queue is not empty
	due      schedule[*entry] // entries to look at again, at a time
	// connected is the number of the connection that stands, 0 for none.
	connected uint64
	lastConn  uint64

	pending int // entries queued or in flight
	parked  int // entries that wait for their cluster to be heard from
}

// key names a work as an agent sees it. A cluster can claim to hold a UID of
// another cluster's work, so the UID alone will not do.
type key struct {
	uid     types.UID
	cluster wire.ClusterName
}

// cluster is what the ledger knows of a cluster that has entries.
type cluster struct {
	name    wire.ClusterName
	entries int
	heard   time.Time // when a message last came from it
	queue   fifo[*entry]
	inTurns bool
	parked  map[*entry]struct{}
}

// entry is what the ledger knows of a work. It is queued, in flight, or neither;
// what is in flight is never queued.
type entry struct {
	key     key
	cluster *cluster

	queued, inFlight bool
	again            bool // marked while in flight
	force            bool // publish even what was published already
	resync           bool // as the answer to a resync request

	first       wire.Generation // first one published or confirmed
	published   stamp
	publishedAt time.Time
	confirmed   wire.Generation // highest that the agent spoke of
	deleteHeard bool            // the agent has said that it is deleting the work
	deleted     bool            // and that it is done
	repeats     int             // of published, on this connection
	failures    int             // in a row
	failed      bool            // the last try failed
	refused     *refusal        // the newest state can not be published
	gone        *goneWork       // the source does not have the work (any more)

	sequence    wire.SequenceID // of the last status taken
	hash        string          // of the status at hashVersion
	hashVersion string
}

// goneWork is what is left of a work that a deletion is still owed for.
type goneWork struct {
	generation wire.Generation
	deletedAt  *metav1.Time       // nil: now
	meta       *metav1.ObjectMeta // nil: the source never had it
}

// claim is an entry whose turn it is, as it was at that moment.
type claim struct {
	entry *entry
	key
	force, resync bool
	first         wire.Generation
	published     stamp
	confirmed     wire.Generation
	deleted       bool
	refused       *refusal
	gone          *goneWork
}

// action is the one under which s is published.
func (c *claim) action(s stamp) wire.Action {
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

func newLedger(repeatAfter time.Duration, held func(wire.ClusterName) bool) *ledger {
	return &ledger{
		repeatAfter: repeatAfter,
		held:        held,
		entries:     make(map[key]*entry),
		clusters:    make(map[wire.ClusterName]*cluster),
	}
}

// entryOf gives the entry of k, a new one if need be.
func (l *ledger) entryOf(k key) *entry {
	if e, ok := l.entries[k]; ok {
		return e
	}
	c, ok := l.clusters[k.cluster]
	if !ok {
		c = &cluster{name: k.cluster, parked: make(map[*entry]struct{})}
		l.clusters[k.cluster] = c
	}
	c.entries++
	e := &entry{key: k, cluster: c}
	l.entries[k] = e
	return e
}

// drop forgets e, which must not be in flight.
func (l *ledger) drop(e *entry) {
	delete(l.entries, e.key)
	l.rest(e)
	if e.queued {
		e.queued = false // the queue skips it
		l.pending--
	}
	if e.cluster.entries--; e.cluster.entries == 0 {
		delete(l.clusters, e.cluster.name)
	}
}

// mark queues e, or has it queued when it lands.
func (l *ledger) mark(e *entry) {
	switch {
	case e.inFlight:
		e.again = true
	case !e.queued:
		e.queued = true
		l.pending++
		e.cluster.queue.push(e)
		if !e.cluster.inTurns {
			e.cluster.inTurns = true
			l.turns.push(e.cluster)
		}
	}
}

// changed notes that the work of k may have a new state.
func (l *ledger) changed(k key) { l.mark(l.entryOf(k)) }

// owed notes that the work of k must be published whatever was published before.
func (l *ledger) owed(k key, resync bool) {
	e := l.entryOf(k)
	e.force = true
	e.resync = e.resync || resync
	l.mark(e)
}

// vanished notes that the source no longer has the work of k. What its agent has
// deleted is forgotten; for the rest a deletion is owed.
func (l *ledger) vanished(k key, g goneWork) {
	e := l.entryOf(k)
	e.gone = &g
	if e.deleted {
		if !e.inFlight {
			l.drop(e)
		}
		return
	}
	e.force = true
	l.mark(e)
}

// answerGone owes a deletion for an id that an agent holds and the source does
// not have.
func (l *ledger) answerGone(k key, held wire.Generation) {
	e := l.entryOf(k)
	if e.gone == nil {
		e.gone = &goneWork{generation: held}
	}
	e.deleted = false
	e.force, e.resync = true, true
	l.mark(e)
}

// next claims the entry whose turn it is. There are turns only while connected.
func (l *ledger) next(now time.Time) (claim, bool) {
	l.wakeDue(now)
	for l.connected != 0 {
		c, ok := l.turns.pop()
		if !ok {
			break
		}
		if l.held(c.name) {
			c.inTurns = false // until it is released
			continue
		}
		e, _ := c.queue.pop()
		if c.inTurns = c.queue.len() > 0; c.inTurns {
			l.turns.push(c)
		}
		if e == nil || !e.queued {
			continue
		}
		e.queued, e.inFlight = false, true
		l.rest(e)
		made := claim{
			entry: e, key: e.key, force: e.force, resync: e.resync, first: e.first, published: e.published,
			confirmed: e.confirmed, deleted: e.deleted, refused: e.refused, gone: e.gone,
		}
		e.force, e.resync = false, false
		return made, true
	}
	return claim{}, false
}

// released notes that a cluster may be held no more.
func (l *ledger) released(name wire.ClusterName) {
	c, ok := l.clusters[name]
	if ok && !c.inTurns && c.queue.len() > 0 {
		c.inTurns = true
		l.turns.push(c)
	}
}

// wakeAt is the earliest time at which next may have more by time alone.
func (l *ledger) wakeAt() (time.Time, bool) {
	if l.connected == 0 {
		return time.Time{}, false
	}
	return l.due.next()
}

// rest takes e off the schedule and out of its cluster's parking place.
func (l *ledger) rest(e *entry) {
	l.due.remove(e)
	if _, ok := e.cluster.parked[e]; ok {
		delete(e.cluster.parked, e)
		l.parked--
	}
}

// connect begins a connection with this packet limit and gives its number. What
// is not known to have arrived is owed again. It costs O(n), once a connect.
func (l *ledger) connect(limit int) uint64 {
	l.lastConn++
	l.connected = l.lastConn
	for _, e := range l.entries {
		if e.refused != nil {
			if e.refused.stillRefused(limit) {
				continue
			}
			e.refused = nil
			e.force = true
		}
		e.repeats, e.failures = 0, 0
		if e.force || e.failed || e.unsettled() || e.published.deleting && !e.deleted {
			e.force = true
			l.mark(e)
		}
	}
	return l.connected
}

// disconnect ends the connection with this number, unless another one stands.
func (l *ledger) disconnect(number uint64) {
	if l.connected == number {
		l.connected = 0
	}
}
