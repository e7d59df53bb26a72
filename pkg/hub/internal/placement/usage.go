package placement

import (
	"sync"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// usage counts, by cluster, the PlacementDecisions that have it. It is safe for concurrent use.
type usage struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu
}

// observe updates a decision, of which before is nil if it is new, and after if it is gone.
func (u *usage) observe(before, after *clusterv1beta1.PlacementDecision) {
	u.mu.Lock()
	defer u.mu.Unlock()
	add := func(d *clusterv1beta1.PlacementDecision, n int) {
		if d == nil {
			return
		}
		for _, decision := range d.Status.Decisions {
			if u.counts[decision.ClusterName] += n; u.counts[decision.ClusterName] == 0 {
				delete(u.counts, decision.ClusterName)
			}
		}
	}
	add(before, -1)
	add(after, 1)
}

// of returns the count of a cluster.
func (u *usage) of(cluster string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts[cluster]
}
