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

// cluster is a ManagedCluster with what placements read of it. It is immutable.
type cluster struct {
	name     string
	accepted bool // accepted by the hub and not being deleted
	labels   map[string]string
	claims   map[string]string
	taints   []taint
	object   *clusterv1.ManagedCluster // the one of the cache, so that no other is kept in memory
	scores   scores
	version  *version
}

// version is the same for states of a cluster that nobody distinguishes.
type version struct{ _ byte }

// taint is a taint with the time from which it counts, in whole seconds.
type taint struct {
	key, value string
	effect     clusterv1.TaintEffect
	since      time.Time
}

// newCluster converts what is known of a cluster. A taint without timeAdded counts from when it was first
// seen: the time in before if it has the taint, or now.
func newCluster(c *clusterv1.ManagedCluster, of scores, before *cluster, now time.Time) *cluster {
	converted := &cluster{
		name: c.Name, accepted: c.Spec.HubAcceptsClient && c.DeletionTimestamp == nil, labels: c.Labels,
		claims: make(map[string]string, len(c.Status.ClusterClaims)), object: c, scores: of, version: new(version),
	}
	for _, claim := range c.Status.ClusterClaims {
		converted.claims[claim.Name] = claim.Value
	}
	for _, t := range c.Spec.Taints {
		seen := taint{key: t.Key, value: t.Value, effect: t.Effect, since: t.TimeAdded.Time}
		if seen.since.IsZero() {
			seen.since = before.firstSeen(t, now)
		}
		converted.taints = append(converted.taints, seen)
	}
	return converted
}

// firstSeen returns the time from which t counts in c, which may be nil; now if c does not have t.
func (c *cluster) firstSeen(t clusterv1.Taint, now time.Time) time.Time {
	if c != nil {
		for _, known := range c.taints {
			if known.key == t.Key && known.value == t.Value && known.effect == t.Effect {
				return known.since
			}
		}
	}
	return time.Unix(now.Unix(), 0)
}

// clusterIndex holds all clusters and the rules of all placements, and finds the placements that a
// change of a cluster affects. It is safe for concurrent use.
type clusterIndex struct {
	scoresOf func(cluster string) scores
	patience time.Duration // with the expressions of all placements for one change

	mu         sync.Mutex
	clusters   map[string]*cluster             // guarded by mu
	sorted     []*cluster                      // guarded by mu: clusters by name; nil if outdated
	placements map[types.NamespacedName]*rules // guarded by mu
}

func newClusterIndex(scoresOf func(cluster string) scores) *clusterIndex {
	return &clusterIndex{
		scoresOf: scoresOf, patience: maxChangeTime, clusters: make(map[string]*cluster), placements: make(map[types.NamespacedName]*rules),
	}
}

// observe updates a cluster and returns the placements whose evaluation of it has changed. It
// evaluates every placement if the cluster has changed in a field that placements depend on, and
// none otherwise.
func (x *clusterIndex) observe(c *clusterv1.ManagedCluster, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.update(c, now)
}

// update is observe. The caller holds mu.
func (x *clusterIndex) update(c *clusterv1.ManagedCluster, now time.Time) []types.NamespacedName {
	before := x.clusters[c.Name]
	after := newCluster(c, x.scoresOf(c.Name), before, now)
	x.clusters[c.Name], x.sorted = after, nil
	if before != nil && after.equal(before) {
		after.version = before.version
		return nil
	}
	return x.affectedPlacements(before, after, now)
}

// scoreChanged updates a cluster, if it is there, whose scores have changed, as observe does.
func (x *clusterIndex) scoreChanged(name string, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.clusters[name]; c != nil {
		return x.update(c.object, now)
	}
	return nil
}

// remove removes a cluster and returns the placements whose evaluation of it has changed.
func (x *clusterIndex) remove(name string, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, ok := x.clusters[name]
	if !ok {
		return nil
	}
	delete(x.clusters, name)
	x.sorted = nil
	affected := x.affectedPlacements(before, nil, now)
	for _, r := range x.placements {
		r.forget(name)
	}
	return affected
}

// affectedPlacements returns the placements that evaluate before and after differently, of which one
// is nil if the cluster is new or gone. Once expressions have taken too long, it returns the others that have some as
// well, which are evaluated when they are reconciled. The caller holds mu.
func (x *clusterIndex) affectedPlacements(before, after *cluster, now time.Time) []types.NamespacedName {
	var keys []types.NamespacedName
	started := time.Now()
	for key, r := range x.placements {
		late := len(r.expressions) > 0 && time.Since(started) > x.patience
		if late || r.distinguishes(before, after, now) {
			keys = append(keys, key)
		}
	}
	return keys
}

// setRules sets the rules of a placement; nil removes the placement.
func (x *clusterIndex) setRules(key types.NamespacedName, r *rules) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r == nil {
		delete(x.placements, key)
	} else {
		x.placements[key] = r
	}
}

// expressionsOf returns the expressions of a placement by text.
func (x *clusterIndex) expressionsOf(key types.NamespacedName) map[string]*celExpression {
	x.mu.Lock()
	defer x.mu.Unlock()
	byText := make(map[string]*celExpression)
	if r := x.placements[key]; r != nil {
		for _, e := range r.expressions {
			byText[e.text] = e
		}
	}
	return byText
}

// byName returns all clusters, sorted by name. The caller must not modify the slice.
func (x *clusterIndex) byName() []*cluster {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sorted == nil {
		x.sorted = slices.SortedFunc(maps.Values(x.clusters), func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
	}
	return x.sorted
}
