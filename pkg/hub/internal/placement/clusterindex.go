package placement

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// cluster is the part of a ManagedCluster that placements depend on. It is immutable.
type cluster struct {
	name     string
	accepted bool // accepted by the hub and not being deleted
	labels   map[string]string
	claims   map[string]string
	taints   []taint
}

// taint is a taint with the time from which it counts, in whole seconds.
type taint struct {
	key, value string
	effect     clusterv1.TaintEffect
	since      time.Time
}

// newCluster converts c. A taint without timeAdded counts from when it was first seen: the time in
// before if it has the taint, or now.
func newCluster(c *clusterv1.ManagedCluster, before *cluster, now time.Time) *cluster {
	converted := &cluster{
		name: c.Name, accepted: c.Spec.HubAcceptsClient && c.DeletionTimestamp == nil, labels: c.Labels,
		claims: make(map[string]string, len(c.Status.ClusterClaims)),
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

// adjusted returns clusters with the times of their taints adjusted to steps of the clock. Its cost is
// linear in the clusters, as that of schedule.
func adjusted(clusters []*cluster, clock *walltime.Clock) []*cluster {
	var changed []*cluster
	for i, c := range clusters {
		for j, t := range c.taints {
			since := clock.Adjusted(t.since)
			if since.Equal(t.since) {
				continue
			}
			if changed == nil {
				changed = slices.Clone(clusters)
			}
			if changed[i] == c {
				copied := *c
				copied.taints = slices.Clone(c.taints)
				changed[i] = &copied
			}
			changed[i].taints[j].since = since
		}
	}
	if changed == nil {
		return clusters
	}
	return changed
}

// equalClusters reports whether no placement distinguishes a from b.
func equalClusters(a, b *cluster) bool {
	return a.accepted == b.accepted && maps.Equal(a.labels, b.labels) && maps.Equal(a.claims, b.claims) &&
		slices.EqualFunc(a.taints, b.taints, func(a, b taint) bool {
			return a.key == b.key && a.value == b.value && a.effect == b.effect && a.since.Equal(b.since)
		})
}

// clusterIndex holds all clusters and the rules of all placements, and finds the placements that a
// change of a cluster affects. It is safe for concurrent use.
type clusterIndex struct {
	mu         sync.Mutex
	clusters   map[string]*cluster             // guarded by mu
	sorted     []*cluster                      // guarded by mu: clusters by name; nil if outdated
	placements map[types.NamespacedName]*rules // guarded by mu
}

func newClusterIndex() *clusterIndex {
	return &clusterIndex{clusters: make(map[string]*cluster), placements: make(map[types.NamespacedName]*rules)}
}

// observe updates a cluster and returns the placements whose evaluation of it has changed. It
// evaluates every placement if the cluster has changed in a field that placements depend on, and
// none otherwise.
func (x *clusterIndex) observe(c *clusterv1.ManagedCluster, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.clusters[c.Name]
	after := newCluster(c, before, now)
	if before != nil && equalClusters(before, after) {
		return nil
	}
	x.clusters[c.Name], x.sorted = after, nil
	return x.affectedPlacements(before, after, now)
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
	return x.affectedPlacements(before, nil, now)
}

// affectedPlacements returns the placements that evaluate before and after differently, of which one
// is nil if the cluster is new or gone. The caller holds mu.
func (x *clusterIndex) affectedPlacements(before, after *cluster, now time.Time) []types.NamespacedName {
	var keys []types.NamespacedName
	for key, r := range x.placements {
		if r.evaluate(before, now) != r.evaluate(after, now) {
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

// byName returns all clusters, sorted by name. The caller must not modify the slice.
func (x *clusterIndex) byName() []*cluster {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sorted == nil {
		x.sorted = slices.SortedFunc(maps.Values(x.clusters), func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
	}
	return x.sorted
}
