package clustersets

import (
	"maps"
	"sync"
)

// index counts the clusters of each set. A change of a cluster costs one comparison per set, a change
// of a set one per cluster. It is safe for concurrent use.
type index struct {
	mu       sync.Mutex
	clusters map[string]map[string]string // guarded by mu: labels by cluster
	sets     map[string]*Set              // guarded by mu
	counts   map[string]int               // guarded by mu: by set
}

func newIndex() *index {
	return &index{clusters: make(map[string]map[string]string), sets: make(map[string]*Set), counts: make(map[string]int)}
}

// setCluster notes the labels of a cluster, or with exists unset that it is gone. It returns the sets
// whose number of clusters has changed.
func (x *index) setCluster(name string, labels map[string]string, exists bool) (changed []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	before, existed := x.clusters[name]
	if existed == exists && maps.Equal(before, labels) {
		return nil
	}
	delete(x.clusters, name)
	if exists {
		x.clusters[name] = labels
	}
	for key, set := range x.sets {
		was, is := existed && set.Has(before), exists && set.Has(labels)
		switch {
		case is && !was:
			x.counts[key]++
		case was && !is:
			x.counts[key]--
		default:
			continue
		}
		changed = append(changed, key)
	}
	return changed
}

// setSet notes the rule of a set; nil removes it.
func (x *index) setSet(name string, set *Set) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.counts, name)
	delete(x.sets, name)
	if set == nil {
		return
	}
	x.sets[name] = set
	for _, labels := range x.clusters {
		if set.Has(labels) {
			x.counts[name]++
		}
	}
}

// count returns the number of clusters of a set.
func (x *index) count(name string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.counts[name]
}
