package clusters

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxUnregistered is the maximum number of clusters that are remembered and never had a
	// ManagedCluster.
	maxUnregistered = 10_000
	// unregisteredTimeout is how long they are remembered after their last message.
	unregisteredTimeout = time.Hour
)

// clusterIndex holds in memory what is known of each cluster beside its ManagedCluster. It is safe
// for concurrent use and does no I/O.
type clusterIndex struct {
	policy   policy
	metrics  *metrics
	clusters latestClusters
	works    *works.Cache
	add      func(wire.ClusterName) // queues a cluster, to be reconciled
	wake     chan struct{}          // has room for one: next is earlier than it was

	mu           sync.Mutex
	entries      map[wire.ClusterName]*knownCluster // guarded by mu
	unregistered int                                // guarded by mu: entries that never had a ManagedCluster
	online       bool                               // guarded by mu: the hub is connected
	offlineSince time.Time                          // guarded by mu: zero: online, or nobody vouches already
	read         bool                               // guarded by mu: all ManagedClusters were, see allRead
	census       census                             // guarded by mu: the sum of the votes of entries
	braked       bool                               // guarded by mu: the fleet brake is engaged
	brakeChanges []brakeChange                      // guarded by mu: to be reported
	taintsFrom   time.Time                          // guarded by mu: see failover
	next         time.Time                          // guarded by mu: when tick must be called; zero: never
}

// latestClusters returns ManagedClusters as they were last seen or written.
type latestClusters interface {
	Latest(key types.NamespacedName) (*clusterv1.ManagedCluster, bool)
}

// knownCluster is what is known of one cluster.
type knownCluster struct {
	presence presence
	// registered is whether a watch event has shown a ManagedCluster.
	registered bool
	// removed is whether there was a ManagedCluster that was deleted.
	removed bool
	// spoken is whether the agent has sent a message since there is no ManagedCluster.
	spoken bool
	// touched is the time of the last message.
	touched time.Time
	// taintsFrom is the failover.from of this cluster alone: another hub served it before. Zero: as all.
	taintsFrom time.Time
	// queued is whether the cluster waits to be reconciled, perhaps after a backoff.
	queued bool
	// vote is how the census counts the cluster.
	vote vote
	// heard is when the first message on the hub's present connection came; zero: none did.
	heard time.Time
	// held are works that the hub does not know; nil: none was ever heard of.
	held *heldWorks
	// findings are what is known of each alarm.
	findings [alarmCount]finding
	// about is what the cluster said of itself last; nil: nothing that its ManagedCluster does not show.
	about *wire.About
	// aboutWritten is when that was last written; zero: not since the hub started.
	aboutWritten time.Time
}

// neverRegistered reports whether the cluster never had a ManagedCluster. Whoever may connect makes as many of these as they like; of the
// deleted ones, which stay known, there are as many as somebody has made and deleted.
func (e *knownCluster) neverRegistered() bool { return !e.registered && !e.removed }

func newClusterIndex(p policy, m *metrics, clusters latestClusters, works *works.Cache, add func(wire.ClusterName)) *clusterIndex {
	return &clusterIndex{
		policy: p, metrics: m, clusters: clusters, works: works, add: add, wake: make(chan struct{}, 1), entries: make(map[wire.ClusterName]*knownCluster),
	}
}

// stored returns the ManagedCluster of a cluster as it was last seen or written; nil if there is
// none.
func (x *clusterIndex) stored(name wire.ClusterName) *clusterv1.ManagedCluster {
	cluster, _ := x.clusters.Latest(types.NamespacedName{Name: string(name)})
	return cluster
}

// enqueue has e reconciled. A cluster that is queued already, perhaps for after a backoff, is not
// queued again: its reconcile covers all that happens until then. mu is held.
func (x *clusterIndex) enqueue(name wire.ClusterName, e *knownCluster) {
	if !e.queued {
		e.queued = true
		x.add(name)
	}
}

// requeued notes that name will be reconciled again after a backoff.
func (x *clusterIndex) requeued(name wire.ClusterName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[name]; ok {
		e.queued = true
	}
}

// messageReceived handles a message of a cluster; p is nil for messages other than presence.
func (x *clusterIndex) messageReceived(name wire.ClusterName, p *wire.Presence, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if p := x.policy; (!ok || !e.registered) && p.autoRegister && p.registers != nil && !p.registers(name) {
		x.metrics.ignored.WithLabelValues("no_key").Inc()
		return
	}
	if !ok {
		if e, ok = x.addUnregistered(name, now); !ok {
			return
		}
	}
	before := e.presence
	switch {
	case p == nil:
		e.presence = before.messageReceived(now, x.policy.limits)
	case p.Present:
		e.presence = before.sessionStarted(p.Session, now)
	default:
		e.presence = before.sessionEnded(p.Session, now)
	}
	e.touched = now
	if x.online && e.heard.IsZero() {
		e.heard = now
		stored := x.stored(name)
		if e.held != nil || stored != nil && hasAlarm(stored) {
			x.enqueue(name, e)
		}
	}
	x.recount(name, e, now)
	if p != nil && p.Present && p.About != nil && p.Session != before.endedSession {
		stored := x.stored(name)
		if e.about = p.About; stored != nil && showsAbout(stored, p.About) {
			e.about = nil
		} else if stored != nil {
			x.enqueue(name, e)
		}
	}
	first := e.presence.heard.After(before.heard) && !e.spoken
	e.spoken = e.spoken || first
	x.presenceChanged(name, e, before, first)
}

// addUnregistered adds an entry for a cluster that was not known. It reports false if its name
// cannot be that of a ManagedCluster, or if there are too many of them. mu is held.
func (x *clusterIndex) addUnregistered(name wire.ClusterName, now time.Time) (*knownCluster, bool) {
	if len(validation.IsDNS1123Label(string(name))) > 0 {
		x.metrics.ignored.WithLabelValues("invalid_name").Inc()
		return nil, false
	}
	if x.unregistered >= maxUnregistered {
		x.metrics.ignored.WithLabelValues("too_many").Inc()
		return nil, false
	}
	e := &knownCluster{presence: presence{state: unseen}}
	x.entries[name] = e
	x.unregistered++
	x.schedule(now.Add(unregisteredTimeout))
	return e, true
}

// presenceChanged queues a cluster if its ManagedCluster must show a change of presence, or if
// force is true. mu is held.
func (x *clusterIndex) presenceChanged(name wire.ClusterName, e *knownCluster, before presence, force bool) {
	p := e.presence
	if p.state != before.state {
		x.metrics.changes.WithLabelValues(string(p.state)).Inc()
	}
	x.schedule(p.deadline())
	stored := x.stored(name)
	if stored == nil && !x.policy.autoRegister {
		return
	}
	if force || p.state != before.state || p.announces != before.announces || stored != nil && outdated(stored, p, len(x.entries)) {
		x.enqueue(name, e)
	}
}

// schedule has tick called at a time; zero stands for never. mu is held.
func (x *clusterIndex) schedule(at time.Time) {
	if at.IsZero() || !x.next.IsZero() && !at.Before(x.next) {
		return
	}
	x.next = at
	x.wakeTimer()
}

// wakeTimer has the timer look at what is due, and at the brake.
func (x *clusterIndex) wakeTimer() {
	select {
	case x.wake <- struct{}{}:
	default: // awake already
	}
}

// starting handles the start of a hub that is not connected yet.
func (x *clusterIndex) starting(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.online {
		x.offline(now)
	}
}

// offline notes that the hub has no connection. mu is held.
func (x *clusterIndex) offline(now time.Time) {
	x.offlineSince = now
	x.wakeTimer()
}

// hubAbsent applies that the hub has had no connection for too long, once per loss of it: one pass
// over all clusters. It returns when that is due; zero: it is not. mu is held.
func (x *clusterIndex) hubAbsent(now time.Time) (next time.Time) {
	if x.offlineSince.IsZero() {
		return time.Time{}
	}
	if due := x.offlineSince.Add(x.policy.limits.hubAbsence); due.After(now) {
		return due
	}
	x.offlineSince = time.Time{}
	for name, e := range x.entries {
		before := e.presence.state
		if e.presence = e.presence.hubAbsent(now); e.presence.state != before {
			x.metrics.changes.WithLabelValues(string(e.presence.state)).Inc()
			x.recount(name, e, now)
			x.enqueue(name, e)
		}
	}
	return time.Time{}
}

// connectionChanged handles the beginning or the end of a connection of the hub. When it begins,
// every cluster is expected to send a message.
func (x *clusterIndex) connectionChanged(up bool, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.online = up; !up {
		x.offline(now)
		return
	}
	x.offlineSince = time.Time{}
	for _, e := range x.entries { // once per connection
		e.heard = time.Time{}
		e.presence = e.presence.hubConnected(now, x.policy.limits)
	}
	x.delayTaints(x.announcedBy(now))
	x.next = time.Time{} // what was due meanwhile must not keep the timer from being woken
	x.schedule(now)
}

// announcedBy returns when an agent that returned unnoticed before now has announced itself.
func (x *clusterIndex) announcedBy(now time.Time) time.Time {
	return now.Add(min(x.policy.limits.absence, x.policy.limits.grace))
}

// tick applies what follows from the passing of time. It returns the clusters to probe and the time
// of the next call; zero stands for the next wake. It is one pass over all clusters, but not for
// each message: nothing expires for an agent that announces itself, and each message of another
// agent only postpones its deadline.
func (x *clusterIndex) tick(now time.Time) (probe []wire.ClusterName, next time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case !x.online:
		return nil, x.hubAbsent(now)
	case x.next.IsZero() || x.next.After(now):
		return nil, x.next
	}
	for name, e := range x.entries {
		if e.neverRegistered() && now.Sub(e.touched) > unregisteredTimeout {
			delete(x.entries, name)
			x.unregistered--
			continue
		}
		before := e.presence
		var wanted bool
		if e.presence, wanted = before.expire(now); wanted && (e.registered || x.policy.autoRegister) {
			probe = append(probe, name)
		}
		if e.presence.state != before.state {
			x.metrics.changes.WithLabelValues(string(e.presence.state)).Inc()
			x.recount(name, e, now)
			x.enqueue(name, e)
		}
		if at := e.presence.deadline(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	if next.IsZero() && x.unregistered > 0 {
		next = now.Add(unregisteredTimeout)
	}
	x.next = next
	return probe, next
}

// clusterChanged handles a watch event of a ManagedCluster; after is nil when it was deleted. It
// reports whether the agent should be probed.
func (x *clusterIndex) clusterChanged(name wire.ClusterName, after *clusterv1.ManagedCluster, now time.Time) (probe bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	switch {
	case !ok && after == nil && !x.policy.autoRegister:
		return false
	case !ok: // if it was deleted: it was the cluster of another hub, which is not to be accepted again
		e = &knownCluster{presence: presence{state: unseen}, touched: now}
		x.entries[name] = e
		x.unregistered++
	}
	if after == nil {
		if x.stored(name) == nil { // not created again here already
			x.unregister(e)
			x.recount(name, e, now)
		}
		return false
	}
	if !e.registered {
		if e.neverRegistered() {
			x.unregistered--
		}
		e.registered = true
		if e.presence.state == unseen {
			e.presence = restorePresence(after)
			if x.online {
				e.presence = e.presence.hubConnected(now, x.policy.limits)
				e.taintsFrom = x.announcedBy(now)
				x.presenceChanged(name, e, e.presence, false)
				probe = true
			}
		}
	}
	x.recount(name, e, now)
	x.enqueue(name, e)
	return probe
}

// wroteAbout notes that it was written what a cluster says of itself.
func (x *clusterIndex) wroteAbout(name wire.ClusterName, about *wire.About, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[name]; ok {
		if e.aboutWritten = now; e.about == about {
			e.about = nil
		}
	}
}

// forget removes what is known of a cluster that another hub serves.
func (x *clusterIndex) forget(name wire.ClusterName, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if !ok {
		return
	}
	if e.neverRegistered() {
		x.unregistered--
	}
	e.registered = false
	x.recount(name, e, now)
	delete(x.entries, name)
}

// removed notes that the ManagedCluster of name did not exist when it was written.
func (x *clusterIndex) removed(name wire.ClusterName, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.entries[name]; ok {
		x.unregister(e)
		x.recount(name, e, now)
	}
}

// unregister notes that e has no ManagedCluster any more, and forgets what only one would show. mu is held.
func (x *clusterIndex) unregister(e *knownCluster) {
	if e.neverRegistered() {
		x.unregistered--
	}
	e.registered, e.removed, e.spoken = false, true, false
	e.held, e.about = nil, nil
}

// view is what decide needs to know of a cluster.
type view struct {
	presence presence
	stored   *clusterv1.ManagedCluster // nil: there is none
	clusters int                       // in the fleet
	spoken   bool
	removed  bool
	failover failover
	held     heldView
	findings [alarmCount]finding
	about    *wire.About

	aboutWritten time.Time
}

// view returns what is known of a cluster, at the start of its reconcile.
func (x *clusterIndex) view(name wire.ClusterName) (view, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.entries[name]
	if !ok {
		return view{}, false
	}
	e.queued = false
	stored := x.stored(name)
	return view{
		presence: e.presence, stored: stored, clusters: len(x.entries), spoken: e.spoken, removed: e.removed, failover: x.failoverOf(e),
		held: x.heldView(name, e, stored), findings: e.findings, about: e.about, aboutWritten: e.aboutWritten,
	}, true
}
