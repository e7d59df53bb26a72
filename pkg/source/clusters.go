package source

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// maxClusters bounds the clusters that a client remembers. Messages of further ones are delivered like
// all, but [Clusters] does not show them.
const maxClusters = 200_000

// Presence is whether the agent of a cluster is connected to the broker.
type Presence string

const (
	// PresenceUnknown: the agent does not announce itself, as those of Open Cluster Management, or has not
	// since this client connected; or this client has no connection.
	PresenceUnknown Presence = "Unknown"
	// PresenceConnected: the agent has announced its connection, and its end was not announced.
	PresenceConnected Presence = "Connected"
	// PresenceDisconnected: the agent has said that it stops, or the broker that its connection was lost.
	PresenceDisconnected Presence = "Disconnected"
)

// ClusterPresence is what a client knows of the agent of a cluster (docs/protocol.md, Presence).
type ClusterPresence struct {
	Name     wire.ClusterName
	Presence Presence
	// Since is when Presence became what it is, by the clock of this client.
	Since time.Time
	// LastHeard is when the last message of the cluster arrived, presence and wills included.
	LastHeard time.Time
	// Agent is the client id of the agent that announced itself last; empty: none has.
	Agent string
}

// Clusters are the clusters that a client has heard of since it began to run: those whose agents
// announced themselves, sent statuses, or asked for works. It is in memory only. Of several replicas,
// the one that publishes hears of clusters. Presence is not signed: whoever may publish for a cluster
// at the broker can say that its agent is there, or is not. All methods are safe for concurrent use.
type Clusters struct {
	now func() time.Time

	mu       sync.Mutex
	known    map[wire.ClusterName]*knownCluster
	watchers map[*presenceWatch]struct{}
	lost     time.Time // when the client's connection was lost last
}

type knownCluster struct {
	ClusterPresence
	session, ended string // the last one that began, and the last one that ended
}

// Clusters returns the clusters that the client has heard of.
func (c *Client) Clusters() *Clusters { return c.clusters }

func newClusters() *Clusters {
	return &Clusters{now: time.Now, known: make(map[wire.ClusterName]*knownCluster), watchers: make(map[*presenceWatch]struct{})}
}

// Get returns what is known of a cluster, and false if it was never heard of.
func (c *Clusters) Get(name wire.ClusterName) (ClusterPresence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[name]; ok {
		return k.ClusterPresence, true
	}
	return ClusterPresence{}, false
}

// List returns all clusters, sorted by name.
func (c *Clusters) List() []ClusterPresence {
	c.mu.Lock()
	list := make([]ClusterPresence, 0, len(c.known))
	for _, k := range c.known {
		list = append(list, k.ClusterPresence)
	}
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b ClusterPresence) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Watch yields every cluster as it is now, and then each whose Presence changes or that is new, until
// ctx ends. A reader that is slow gets the newest state of a cluster once. Messages that change
// LastHeard only are not yielded.
//
//	for cluster := range client.Clusters().Watch(ctx) {
//		...
//	}
func (c *Clusters) Watch(ctx context.Context) iter.Seq[ClusterPresence] {
	return func(yield func(ClusterPresence) bool) {
		w := &presenceWatch{changed: make(map[wire.ClusterName]struct{}), wake: make(chan struct{}, 1)}
		c.mu.Lock()
		for name := range c.known {
			w.add(name)
		}
		c.watchers[w] = struct{}{}
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.watchers, w)
		}()
		for {
			for _, cluster := range c.drain(w) {
				if ctx.Err() != nil || !yield(cluster) {
					return
				}
			}
			select {
			case <-w.wake:
			case <-ctx.Done():
				return
			}
		}
	}
}

// presenceWatch is one watch; Clusters.mu guards it.
type presenceWatch struct {
	changed map[wire.ClusterName]struct{} // to be yielded
	wake    chan struct{}
}

func (w *presenceWatch) add(name wire.ClusterName) {
	w.changed[name] = struct{}{}
	select {
	case w.wake <- struct{}{}:
	default: // awake already
	}
}

// drain returns what w has to yield, sorted by name, and empties it.
func (c *Clusters) drain(w *presenceWatch) []ClusterPresence {
	c.mu.Lock()
	list := make([]ClusterPresence, 0, len(w.changed))
	for name := range w.changed {
		list = append(list, c.known[name].ClusterPresence)
	}
	clear(w.changed)
	c.mu.Unlock()
	slices.SortFunc(list, func(a, b ClusterPresence) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// heard notes a message of a cluster; p is nil for one that is not about presence.
func (c *Clusters) heard(name wire.ClusterName, p *wire.Presence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[name]
	if !ok {
		if len(c.known) >= maxClusters {
			return
		}
		k = &knownCluster{ClusterPresence: ClusterPresence{Name: name, Presence: PresenceUnknown, Since: c.now()}}
		c.known[name] = k
	}
	before := k.Presence
	*k = k.after(p, c.now())
	if !ok || k.Presence != before {
		c.tell(name)
	}
}

// after returns what is known after a message; p is nil for one that is not about presence. The end of
// a session before the last one says nothing, and a session that has ended does not begin again.
func (k knownCluster) after(p *wire.Presence, now time.Time) knownCluster {
	k.LastHeard = now
	next := k.Presence
	switch {
	case p == nil:
	case p.Present && p.Session != k.ended:
		next, k.session, k.Agent = PresenceConnected, p.Session, p.Agent
	case !p.Present && (k.session == "" || k.session == p.Session):
		next, k.ended, k.Agent = PresenceDisconnected, p.Session, p.Agent
	}
	if next != k.Presence {
		k.Presence, k.Since = next, now
	}
	return k
}

// connectionChanged handles the beginning or the end of the client's connection: without one, nobody
// says that agents go, so those that are connected become unknown until they announce themselves again,
// as they do when the client returns.
func (c *Clusters) connectionChanged(up bool) {
	if up {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.lost = now
	for name, k := range c.known {
		if k.Presence == PresenceConnected {
			k.Presence, k.Since = PresenceUnknown, now
			c.tell(name)
		}
	}
}

// lastLost returns when the client's connection was lost last; zero: never.
func (c *Clusters) lastLost() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// tell has all watches yield a cluster. mu is held.
func (c *Clusters) tell(name wire.ClusterName) {
	for w := range c.watchers {
		w.add(name)
	}
}
