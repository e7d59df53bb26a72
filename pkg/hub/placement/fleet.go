package placement

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// cluster is what placements want to know of a ManagedCluster. It is never
// changed.
type cluster struct {
	name   string
	open   bool // accepted by the hub and not being deleted
	labels map[string]string
	claims map[string]string
	taints []taint
}

// taint is a taint with the time since when it counts, in whole seconds.
type taint struct {
	key, value string
	effect     clusterv1.TaintEffect
	since      time.Time
}

// newCluster makes the view of c. A taint that nobody put a time on counts since
// it was first seen: since before had it, or since now.
func newCluster(c *clusterv1.ManagedCluster, before *cluster, now time.Time) *cluster {
	view := &cluster{
		name: c.Name, open: c.Spec.HubAcceptsClient && c.DeletionTimestamp == nil, labels: c.Labels,
		claims: make(map[string]string, len(c.Status.ClusterClaims)),
	}
	for _, claim := range c.Status.ClusterClaims {
		view.claims[claim.Name] = claim.Value
	}
	for _, t := range c.Spec.Taints {
		seen := taint{key: t.Key, value: t.Value, effect: t.Effect, since: t.TimeAdded.Time}
		if seen.since.IsZero() {
			seen.since = time.Unix(now.Unix(), 0)
			if earlier := before.taint(t); earlier != nil {
				seen.since = earlier.since
			}
		}
		view.taints = append(view.taints, seen)
	}
	return view
}

// taint finds t in c, which may be nil.
func (c *cluster) taint(t clusterv1.Taint) *taint {
	if c == nil {
		return nil
	}
	i := slices.IndexFunc(c.taints, func(has taint) bool {
		return has.key == t.Key && has.value == t.Value && has.effect == t.Effect
	})
	if i < 0 {
		return nil
	}
	return &c.taints[i]
}

// same reports whether no placement can tell a from b.
func same(a, b *cluster) bool {
	return a.open == b.open && maps.Equal(a.labels, b.labels) && maps.Equal(a.claims, b.claims) &&
		slices.EqualFunc(a.taints, b.taints, func(a, b taint) bool {
			return a.key == b.key && a.value == b.value && a.effect == b.effect && a.since.Equal(b.since)
		})
}

// fleet holds all clusters, and the rules of all placements, so that it can tell
// which placements a change of a cluster concerns. Its methods may be called
// from any goroutine.
type fleet struct {
	mu         sync.Mutex
	clusters   map[string]*cluster
	sorted     []*cluster // the clusters by name; nil when it has to be made again
	placements map[types.NamespacedName]*rules
}

func newFleet() *fleet {
	return &fleet{clusters: make(map[string]*cluster), placements: make(map[types.NamespacedName]*rules)}
}

// observe takes in a cluster and gives the placements that have to be looked at
// again: those in whose eyes it has changed. It costs one look per placement when
// something changed that placements go by, nothing otherwise.
func (f *fleet) observe(c *clusterv1.ManagedCluster, now time.Time) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.clusters[c.Name]
	after := newCluster(c, before, now)
	if before != nil && same(before, after) {
		return nil
	}
	f.clusters[c.Name], f.sorted = after, nil
	return f.concerned(before, after, now)
}

// drop forgets a cluster and gives the placements that have to be looked at
// again.
func (f *fleet) drop(name string, now time.Time) []types.NamespacedName {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, ok := f.clusters[name]
	if !ok {
		return nil
	}
	delete(f.clusters, name)
	f.sorted = nil
	return f.concerned(before, &cluster{name: name}, now)
}

// concerned gives the placements whose verdict on a cluster differs. The caller
// holds mu.
func (f *fleet) concerned(before, after *cluster, now time.Time) []types.NamespacedName {
	if before == nil {
		before = &cluster{}
	}
	var keys []types.NamespacedName
	for key, r := range f.placements {
		if r.judge(before, now) != r.judge(after, now) {
			keys = append(keys, key)
		}
	}
	return keys
}

// follow has changes of clusters checked by r for the placement; nil ends that.
func (f *fleet) follow(key types.NamespacedName, r *rules) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r == nil {
		delete(f.placements, key)
	} else {
		f.placements[key] = r
	}
}

// byName gives all clusters, by name. The slice is not to be changed.
func (f *fleet) byName() []*cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sorted == nil {
		f.sorted = slices.SortedFunc(maps.Values(f.clusters), func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
	}
	return f.sorted
}
