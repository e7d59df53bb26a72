package delivery

import (
	"maps"
	"slices"
	"time"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// workChanged: a work of the source may have a new state.
type workChanged struct{ key workKey }

func (in workChanged) apply(d *core, _ time.Time) {
	if !d.serves(in.key.cluster) {
		return
	}
	w := d.ensure(in.key)
	if w.removed != nil {
		w.removed.again = true
	}
	d.want(w, newest)
}

// workRestored: the agent may hold other content of a work's generation, or a higher generation. What it
// confirmed before does not apply to what is published.
type workRestored struct {
	key    workKey
	intent intent
}

func (in workRestored) apply(d *core, _ time.Time) {
	if !d.serves(in.key.cluster) {
		return
	}
	w := d.ensure(in.key)
	w.authoritative, w.confirmed, w.published = true, 0, revision{}
	w.setContent(w.content().withHash(in.key.uid, "", 0))
	d.want(w, in.intent)
}

// workRemoved: the source has removed a work.
type workRemoved struct {
	key     workKey
	removed removedWork
}

func (in workRemoved) apply(d *core, _ time.Time) {
	if !d.serves(in.key.cluster) {
		return
	}
	w := d.ensure(in.key)
	w.setRemoved(&in.removed)
	switch {
	case !w.isDeleted():
		d.want(w, repeat)
	case w.phase != inFlight:
		d.forget(w)
	}
}

// workForgotten: the source has given a work up, and says nothing more about it. A work in flight keeps an empty record, so
// that it is not published twice at a time.
type workForgotten struct{ key workKey }

func (in workForgotten) apply(d *core, _ time.Time) {
	w, ok := d.works[in.key]
	switch {
	case !ok:
	case w.phase != inFlight:
		d.forget(w)
	default:
		d.empty(w)
	}
}

// workLost: the source does not know a work that it had.
type workLost struct {
	key        workKey
	generation wire.Generation
}

func (in workLost) apply(d *core, _ time.Time) {
	if d.serves(in.key.cluster) {
		d.deleteUnknown(in.key, in.generation, nil)
	}
}

// keyChanged: the key of the cluster of a work is another one.
type keyChanged struct{ key workKey }

func (in keyChanged) apply(d *core, _ time.Time) {
	if !d.serves(in.key.cluster) {
		return
	}
	w := d.ensure(in.key)
	if w.refused != nil && w.refused.condition.Reason == workv1.ReasonNoSealKey {
		w.refused = nil
	}
	d.want(w, repeat)
}

// clusterSet: a cluster has this state from now on.
type clusterSet struct {
	cluster wire.ClusterName
	state   ClusterState
	gained  bool // another program has served it until now, whatever its state was here
	found   bool // set by step: another program has served it, its works are new
}

func (in *clusterSet) apply(d *core, now time.Time) {
	c := d.cluster(in.cluster)
	before := c.state
	c.state = in.state
	switch {
	case in.state != ClusterElsewhere && (in.gained || before == ClusterElsewhere):
		in.found = true
		d.startAfresh(c, now)
		d.asks.add(c.name, "", c.name, resyncTask{requestStatuses: true, probe: true})
	case before == in.state:
	case in.state == ClusterElsewhere:
		d.startAfresh(c, time.Time{})
	case in.state == ClusterOpen && d.connection != 0:
		d.asks.add(c.name, "", c.name, resyncTask{probe: true})
	}
	if c.state == ClusterOpen && c.queue.Len() > 0 {
		d.enterRoundRobin(c)
	}
	d.release(c)
}

// startAfresh forgets what is known of a cluster but for its state: another program serves it, or has served it until
// gained. What waits, as after a write that failed, may be older than what another program stores. A work in flight keeps
// an empty record, so that it is not published twice at a time.
func (d *core) startAfresh(c *clusterRecord, gained time.Time) {
	d.asks.clear(c.name)
	d.stores.clear(c.name)
	for i := c.works.len() - 1; i >= 0; i-- {
		w := c.works.list[i]
		if w.phase != inFlight {
			d.forget(w)
			continue
		}
		d.empty(w)
	}
	d.clusters[c.name] = c // the last work may have been all that was known
	c.gained, c.heard, c.sessions, c.accepts, c.asked = gained, time.Time{}, nil, wire.Accepts{}, nil
	c.waiting, c.owing, c.distrust, c.noise, c.divergence = 0, false, distrust{}, quota.Noise{}, nil
}

// empty forgets what is known of a work in flight.
func (d *core) empty(w *workRecord) {
	w.setRemoved(nil)
	*w = workRecord{key: w.key, cluster: w.cluster, phase: inFlight, positions: w.positions, abandoned: true}
}

// connected: there is a connection with this packet limit. All works whose last publish is not confirmed
// are published. It costs O(n) for n works.
type connected struct {
	limit    int
	clusters []wire.ClusterName // that the source has works of, in order: they are asked for their statuses
	number   uint64             // set by step
}

func (in *connected) apply(d *core, now time.Time) {
	d.lastConnection++
	if d.connection != 0 {
		d.act(ConnectionChanged{})
	}
	d.connection, in.number = d.lastConnection, d.lastConnection
	d.act(ConnectionChanged{Up: true})
	for _, name := range slices.Sorted(maps.Keys(d.clusters)) {
		for _, w := range d.clusters[name].works.list {
			d.reconnect(w, in.limit)
		}
	}
	for _, name := range in.clusters {
		asked{name, resyncTask{requestStatuses: true}}.apply(d, now)
	}
}

// reconnect has w published if its last publish is not confirmed.
func (d *core) reconnect(w *workRecord, limit int) {
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

// disconnected: the connection with this number has ended.
type disconnected struct{ number uint64 }

func (in disconnected) apply(d *core, _ time.Time) {
	if d.connection == in.number {
		d.connection = 0
		d.act(ConnectionChanged{})
	}
}

// timePassed: something may be due.
type timePassed struct{}

func (timePassed) apply(*core, time.Time) {}

// heard: a cluster has sent a message. Works that awaited it are scheduled rather than queued, since the
// agent may be about to confirm or to request them.
type heard struct{ cluster wire.ClusterName }

func (in heard) apply(d *core, now time.Time) {
	c, ok := d.clusters[in.cluster]
	if !ok || !d.serves(in.cluster) {
		return
	}
	c.heard = now
	for c.silent.len() > 0 {
		w := c.silent.list[0]
		d.move(w, contact)
		d.due.Set(w, now.Add(d.roundTrip.patience(d.republishAfter)))
	}
	if c.noise != (quota.Noise{}) {
		d.noteNoise(c.name, now)
	}
	if !c.distrust.Since.IsZero() && now.Sub(c.distrust.last) >= untrustedMemory {
		c.distrust = distrust{}
		d.act(TrustChanged{Cluster: c.name})
		d.release(c)
	}
}

// quotaExceeded: a cluster could not pay for a message, which was dropped.
type quotaExceeded struct{ cluster wire.ClusterName }

func (in quotaExceeded) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return
	}
	d.noteNoise(in.cluster, now)
	if d.hasWorks(in.cluster) {
		d.asks.add(in.cluster, "", in.cluster, resyncTask{requestStatuses: true, owed: true})
	}
}

// said: the agent of a cluster has announced itself, or asks something.
type said struct {
	cluster wire.ClusterName
	message wire.Message
}

func (in said) apply(d *core, now time.Time) {
	if !d.serves(in.cluster) {
		return
	}
	c, known := d.clusters[in.cluster]
	presence, _ := in.message.(*wire.Presence)
	d.act(ClusterHeard{in.cluster, presence})
	switch m := in.message.(type) {
	case *wire.Presence:
		if known && m.Present {
			c.sessions = c.sessions.add(NewSession(m.Session))
		}
	case *wire.Digest:
		asked{in.cluster, resyncTask{digest: m}}.apply(d, now)
	case *wire.SpecResync:
		if known && !m.Partial {
			c.accepts = m.Accepts
		}
		// An agent that asks for all has just connected, so it may have missed the status resync request.
		asked{in.cluster, resyncTask{question: newQuestion(m), requestStatuses: !m.Partial}}.apply(d, now)
	}
}

// statusReceived: an agent has sent a status. stored is its work, if the source has one.
type statusReceived struct {
	from   sender
	status *wire.Status
	stored StoredWork
	has    bool
	size   int // in memory
	// Set by step: what happens to it, and whether it is the first one that is dropped for want of room.
	verdict      verdict
	firstDropped bool
}

func (in *statusReceived) apply(d *core, now time.Time) {
	s := in.status
	if !d.serves(in.from.cluster) {
		in.verdict = notServed
		return
	}
	w := d.works[workKey{uid: s.UID, cluster: s.Cluster}] // may be nil
	old := in.has && in.from.check(d.source, s.Source, s.Cluster) == accepted && d.isOld(w, s, in.stored.Sequences)
	in.verdict = checkStatus(s, in.from, d.source, in.stored, in.has, old)
	if in.verdict == accepted {
		var room bool
		if room, in.firstDropped = d.waits(s.Cluster, in.size); !room {
			in.verdict = tooMuch
		}
	}
	switch k := (workKey{uid: s.UID, cluster: s.Cluster}); in.verdict {
	case accepted:
		storeWanted{k, ownerOf(in.stored.Work), statusUpdate{name: in.stored.Work.Name, status: s, size: in.size}}.apply(d, now)
	case ahead:
		storeWanted{k, ownerOf(in.stored.Work), statusUpdate{name: in.stored.Work.Name, agentGeneration: s.Generation}}.apply(d, now)
	case unknownWork:
		d.act(UnknownStatus{s})
	}
	switch v := in.verdict; {
	case w == nil: // removed meanwhile
	case v == accepted:
		w.cluster.accepts = s.Accepts
		d.statusAccepted(w, s, now)
		w.statusReported(s.Hash, in.stored.Work.ResourceVersion)
	case v == unknownWork && isTrue(s, workv1.WorkDeleted):
		w.saysDeleted()
		if w.isDeleted() && w.phase != inFlight {
			d.forget(w)
			return
		}
		d.answered(w)
	case v == unknownWork && isTrue(s, workv1.WorkDeleting) && w.removed != nil:
		w.said = max(w.said, saidDeleting)
		d.answered(w)
	case v == notDeleting:
		// The agent has forgotten the work. Earlier confirmations do not apply to what is published now.
		w.sequences = w.sequences.Add(NewSession(s.Session), s.Sequence)
		w.confirmed = 0
		d.want(w, repeat)
	}
}

// isOld reports whether s is older than an accepted status of w, which may be nil. stored is what the
// WorkStore remembers of those.
func (d *core) isOld(w *workRecord, s *wire.Status, stored Sequences) bool {
	session := NewSession(s.Session)
	if w == nil {
		return stored.old(session, s.Sequence, false)
	}
	if w.sequences.Newest.ID == 0 {
		w.sequences = stored
	}
	return w.sequences.old(session, s.Sequence, w.cluster.sessions.before(session, w.sequences.Newest.Session))
}

// statusAccepted records an accepted status.
func (d *core) statusAccepted(w *workRecord, s *wire.Status, now time.Time) {
	w.sequences = w.sequences.Add(NewSession(s.Session), s.Sequence)
	if isTrue(s, workv1.WorkDeleting) || s.Meta.DeletionTimestamp != nil {
		w.said = max(w.said, saidDeleting)
	}
	if isTrue(s, workv1.WorkDeleted) {
		w.saysDeleted()
	}
	if s.Generation == w.published.generation {
		w.authoritative = false
		if j := d.stores.byKey[storeKey{w.key, true}]; j != nil {
			j.value.agentGeneration = 0 // the agent had it before
		}
		if w.confirmed < s.Generation && w.republishes == 0 { // otherwise nobody knows which publish it answers
			d.roundTrip = d.roundTrip.with(now.Sub(w.publishedAt))
		}
	}
	d.confirm(w, s.Generation)
}

// confirm records that the agent of w has this generation.
func (d *core) confirm(w *workRecord, held wire.Generation) {
	w.confirmed = max(w.confirmed, held)
	d.answered(w)
}

// answered ends the wait for an answer if the agent of w has confirmed what was published.
func (d *core) answered(w *workRecord) {
	if !w.unconfirmed() {
		d.move(w, answer)
	}
}
