package clusters

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxStrangers is how many clusters without a ManagedCluster are remembered.
	maxStrangers = 10_000
	// strangerMemory is for how long after they were last heard of.
	strangerMemory = time.Hour
)

// roster is what is known of each cluster, in memory. It is safe for concurrent
// use, and does no I/O.
type roster struct {
	policy  policy
	metrics *metrics
	wake    chan struct{} // room for one: next is earlier than it was

	mu        sync.Mutex
	entries   map[wire.ClusterName]*entry // guarded by mu
	strangers int                         // guarded by mu: entries without a ManagedCluster
	online    bool                        // guarded by mu: the hub is connected
	next      time.Time                   // guarded by mu: when tick has something to do; zero: never
	add       func(wire.ClusterName)      // guarded by mu: queues a name; nil before open
}

// entry is what is known of one cluster.
type entry struct {
	presence presence
	// stored is the newest ManagedCluster that was seen or written; nil: there is none.
	stored *clusterv1.ManagedCluster
	// spoken: the agent was heard from since there was no ManagedCluster.
	spoken bool
	// removed: there was a ManagedCluster, and it was deleted.
	removed bool
	// touched is when the cluster was last heard of.
	touched time.Time
	// queued: a worker is going to look at it, perhaps after a pause.
	queued bool
}

func newRoster(p policy, m *metrics) *roster {
	return &roster{policy: p, metrics: m, wake: make(chan struct{}, 1), entries: make(map[wire.ClusterName]*entry)}
}

// open begins to queue the names of clusters whose ManagedCluster may have to be
// written, with those of all that are known now.
func (r *roster) open(add func(wire.ClusterName)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add = add
	for name, e := range r.entries {
		r.queue(name, e)
	}
}

// queue has a worker look at e, if there are any. What happens until then is seen
// then, so that nothing is tried before its time when writes fail.
//
// mu is held.
func (r *roster) queue(name wire.ClusterName, e *entry) {
	if r.add != nil && !e.queued {
		e.queued = true
		r.add(name)
	}
}

// retried notes that a worker is going to look at name again.
func (r *roster) retried(name wire.ClusterName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		e.queued = true
	}
}

func (r *roster) accepted(name wire.ClusterName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[name]; ok {
		return r.policy.accepts(e.stored)
	}
	return r.policy.accepts(nil)
}

// heard takes in a message of a cluster.
func (r *roster) heard(name wire.ClusterName, p *wire.Presence, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok {
		if e, ok = r.stranger(name, now); !ok {
			return
		}
	}
	before := e.presence
	switch {
	case p == nil:
		e.presence = before.spoke(now, r.policy.limits)
	case p.Present:
		e.presence = before.announced(p.Session, now)
	default:
		e.presence = before.left(p.Session, now)
	}
	e.touched = now
	news := e.presence.heard.After(before.heard) && !e.spoken
	e.spoken = e.spoken || news
	r.changed(name, e, before, news)
}

// stranger makes an entry for a cluster that was not heard of before. It reports
// false if its name can not be registered, or if there are too many of them.
//
// mu is held.
func (r *roster) stranger(name wire.ClusterName, now time.Time) (*entry, bool) {
	if len(validation.IsDNS1123Label(string(name))) > 0 {
		r.metrics.unnoted.WithLabelValues("invalid_name").Inc()
		return nil, false
	}
	if r.strangers >= maxStrangers {
		r.metrics.unnoted.WithLabelValues("too_many").Inc()
		return nil, false
	}
	e := &entry{presence: presence{state: unseen}}
	r.entries[name] = e
	r.strangers++
	r.due(now.Add(strangerMemory))
	return e, true
}

// changed does what a change of presence calls for. news asks for a look at the
// ManagedCluster in any case.
//
// mu is held.
func (r *roster) changed(name wire.ClusterName, e *entry, before presence, news bool) {
	p := e.presence
	if p.state != before.state {
		r.metrics.changes.WithLabelValues(string(p.state)).Inc()
	}
	r.due(p.next())
	if e.stored == nil && !r.policy.autoRegister {
		return
	}
	if news || p.state != before.state || p.announces != before.announces || e.stored != nil && outdated(e.stored, p) {
		r.queue(name, e)
	}
}

// due has tick called at, zero standing for never.
//
// mu is held.
func (r *roster) due(at time.Time) {
	if at.IsZero() || !r.next.IsZero() && !at.Before(r.next) {
		return
	}
	r.next = at
	select {
	case r.wake <- struct{}{}:
	default: // it is awake
	}
}

// connect begins a connection of the hub: every cluster is to show itself.
func (r *roster) connect(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.online = true
	for _, e := range r.entries { // once a connection
		e.presence = e.presence.connected(now, r.policy.limits)
	}
	r.due(now)
}

func (r *roster) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.online = false
}

// tick concludes what time tells, and gives the clusters to ask and the time of the
// next call; zero stands for the next wake. It is one pass over all clusters, though
// not for each message: of an agent that announces itself there is nothing to
// conclude, and with each message of another one its time only moves away.
func (r *roster) tick(now time.Time) (ask []wire.ClusterName, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.online:
		return nil, time.Time{}
	case r.next.IsZero() || r.next.After(now):
		return nil, r.next
	}
	for name, e := range r.entries {
		if e.stored == nil && !e.removed && now.Sub(e.touched) > strangerMemory {
			delete(r.entries, name)
			r.strangers--
			continue
		}
		before := e.presence
		var wanted bool
		if e.presence, wanted = before.at(now); wanted && (e.stored != nil || r.policy.autoRegister) {
			ask = append(ask, name)
		}
		if e.presence.state != before.state {
			r.metrics.changes.WithLabelValues(string(e.presence.state)).Inc()
			r.queue(name, e)
		}
		if at := e.presence.next(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() && r.strangers > 0 {
		next = now.Add(strangerMemory)
	}
	r.next = next
	return ask, next
}

// stored takes in a change of a ManagedCluster, nil standing for none. It tells
// whether the agent is to be asked for a sign of life.
func (r *roster) stored(name wire.ClusterName, before, after *clusterv1.ManagedCluster, now time.Time) (ask bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	switch {
	case !ok && after == nil:
		return false
	case !ok:
		e = &entry{presence: presence{state: unseen}, touched: now}
		r.entries[name] = e
		r.strangers++
	}
	if after == nil {
		if e.stored != nil && e.stored.UID != before.UID {
			return false // made anew here already
		}
		r.keep(e, nil)
		e.removed, e.spoken = true, false
		return false
	}
	if e.presence.state == unseen && e.stored == nil {
		e.presence = restored(after)
		if r.online {
			e.presence = e.presence.connected(now, r.policy.limits)
			r.changed(name, e, e.presence, false)
			ask = true
		}
	}
	if e.stored == nil || e.stored.UID != after.UID || !newer(e.stored, after) {
		r.keep(e, after)
	}
	r.queue(name, e)
	return ask
}

// registered notes cluster as the API server returned it when it was made.
func (r *roster) registered(cluster *clusterv1.ManagedCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[wire.ClusterName(cluster.Name)]; ok && e.stored == nil {
		_, _ = slim(cluster)
		r.keep(e, cluster)
	}
}

// wrote notes cluster as the API server returned it after a write. The informer
// follows by some milliseconds.
func (r *roster) wrote(cluster *clusterv1.ManagedCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[wire.ClusterName(cluster.Name)]
	if ok && e.stored != nil && newer(cluster, e.stored) {
		_, _ = slim(cluster)
		r.keep(e, cluster)
	}
}

// vanished notes that cluster was not there when it was to be written.
func (r *roster) vanished(cluster *clusterv1.ManagedCluster) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.entries[wire.ClusterName(cluster.Name)]; ok && e.stored != nil && e.stored.UID == cluster.UID {
		r.keep(e, nil)
		e.removed, e.spoken = true, false
	}
}

// keep makes stored the ManagedCluster of e.
//
// mu is held.
func (r *roster) keep(e *entry, stored *clusterv1.ManagedCluster) {
	switch {
	case e.stored == nil && stored != nil:
		r.strangers--
	case e.stored != nil && stored == nil:
		r.strangers++
	}
	e.stored = stored
}

// view is what decide needs to know of a cluster.
type view struct {
	presence presence
	stored   *clusterv1.ManagedCluster
	spoken   bool
	removed  bool
}

// look gives a worker what is known of a cluster.
func (r *roster) look(name wire.ClusterName) (view, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[name]
	if !ok {
		return view{}, false
	}
	e.queued = false
	return view{presence: e.presence, stored: e.stored, spoken: e.spoken, removed: e.removed}, true
}

// newer reports whether a is a later state of a ManagedCluster than b.
func newer(a, b *clusterv1.ManagedCluster) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
