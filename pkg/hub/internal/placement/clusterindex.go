package placement

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// cluster is the part of a ManagedCluster that placements depend on. It is immutable.
type cluster struct {
	name     string
	accepted bool // accepted by the hub and not being deleted
	labels   map[string]string
	claims   map[string]string
	taints   []taint
	facts    *facts
}

// taint is a taint with the time from which it counts, in whole seconds.
type taint struct {
	key, value string
	effect     clusterv1.TaintEffect
	since      time.Time
}

// newCluster converts what is known of a cluster. A taint without timeAdded counts from when it was first
// seen: the time in before if it has the taint, or now.
func newCluster(f *facts, before *cluster, now time.Time) *cluster {
	c := f.object
	converted := &cluster{
		name: c.Name, accepted: c.Spec.HubAcceptsClient && c.DeletionTimestamp == nil, labels: c.Labels,
		claims: make(map[string]string, len(c.Status.ClusterClaims)), facts: f,
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
	return a.accepted == b.accepted && a.facts.version == b.facts.version &&
		slices.EqualFunc(a.taints, b.taints, func(a, b taint) bool {
			return a.key == b.key && a.value == b.value && a.effect == b.effect && a.since.Equal(b.since)
		})
}

// clusterIndex holds all clusters and the rules of all placements, and finds the placements that a
// change of a cluster affects. It is safe for concurrent use.
type clusterIndex struct {
	patience time.Duration // with the expressions of all placements for one change

	mu         sync.Mutex
	clusters   map[string]*cluster             // guarded by mu
	scores     map[string]scores               // guarded by mu: by cluster, also by one that is not there
	sorted     []*cluster                      // guarded by mu: clusters by name; nil if outdated
	placements map[types.NamespacedName]*rules // guarded by mu
}

func newClusterIndex() *clusterIndex {
	return &clusterIndex{
		patience: maxChangeTime,
		clusters: make(map[string]*cluster), scores: make(map[string]scores), placements: make(map[types.NamespacedName]*rules),
	}
}

// observe updates a cluster and returns the placements whose evaluation of it has changed. It
// evaluates every placement if the cluster has changed in a field that placements depend on, and
// none otherwise.
func (x *clusterIndex) observe(c *clusterv1.ManagedCluster, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.update(newFacts(c, x.scores[c.Name]), now)
}

// update is observe. The caller holds mu.
func (x *clusterIndex) update(f *facts, now time.Time) []types.NamespacedName {
	name := f.object.Name
	before := x.clusters[name]
	after := newCluster(f, before, now)
	x.clusters[name], x.sorted = after, nil
	if before != nil && f.equal(before.facts) {
		f.version = before.facts.version
		if equalClusters(before, after) {
			return nil
		}
	}
	return x.affectedPlacements(before, after, now)
}

// observeScore updates an AddOnPlacementScore, of which before is nil if it is new, and after if it is gone. It
// returns the placements whose evaluation of its cluster has changed.
func (x *clusterIndex) observeScore(before, after *clusterv1alpha1.AddOnPlacementScore, now time.Time) []types.NamespacedName {
	x.mu.Lock()
	defer x.mu.Unlock()
	of := cmp.Or(after, before)
	changed := maps.Clone(x.scores[of.Namespace])
	switch {
	case after == nil:
		delete(changed, of.Name)
	case changed == nil:
		changed = scores{of.Name: after}
	default:
		changed[of.Name] = after
	}
	x.scores[of.Namespace] = changed
	if len(changed) == 0 {
		delete(x.scores, of.Namespace)
	}
	if c := x.clusters[of.Namespace]; c != nil {
		return x.update(newFacts(c.facts.object, changed), now)
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

// byName returns all clusters, sorted by name. The caller must not modify the slice.
func (x *clusterIndex) byName() []*cluster {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sorted == nil {
		x.sorted = slices.SortedFunc(maps.Values(x.clusters), func(a, b *cluster) int { return strings.Compare(a.name, b.name) })
	}
	return x.sorted
}
