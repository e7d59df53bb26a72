package replicaset

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// believed is for how long a work that was made here is believed to be there
// although the cache does not show it.
const believed = 5 * time.Second

// Pauses between the tries of one work that can not be written.
const (
	retryAfter    = 250 * time.Millisecond
	retryAfterMax = time.Minute
)

// memory is what the controller keeps of one set between two passes. All of it
// may be lost. The pass over the set owns it.
//
// The caches follow the API server by some milliseconds. What was written here
// is held until they show it: a plan without it would do the same again or, as
// the order of clusters can change, begin with others in their place.
type memory struct {
	set     *workv1alpha1.ManifestWorkReplicaSet // as it was last written; may be nil
	works   map[types.NamespacedName]written
	failed  map[types.NamespacedName]failure
	groups  map[string]int // by placement, how many groups succeeded
	counted standing       // what the metrics say of the set
}

// written is a work as the API server returned it.
type written struct {
	work    *workv1.ManifestWork
	created time.Time // zero if it was there before
}

// failure is that of the last write of a work.
type failure struct {
	tries int
	again time.Time
}

func newMemory() *memory {
	return &memory{
		works:  make(map[types.NamespacedName]written),
		failed: make(map[types.NamespacedName]failure),
	}
}

// latestSet is the newer of the set as the cache has it and as it was written.
func (m *memory) latestSet(cached *workv1alpha1.ManifestWorkReplicaSet) *workv1alpha1.ManifestWorkReplicaSet {
	if m.set != nil && newer(m.set, cached) {
		return m.set
	}
	m.set = nil
	return cached
}

// latestWorks puts into works, which the cache has, those that were written and
// are newer, and those that were made and are not there yet. named is the cache's
// lookup.
func (m *memory) latestWorks(works []*workv1.ManifestWork, named func(types.NamespacedName) (*workv1.ManifestWork, bool), now time.Time) []*workv1.ManifestWork {
	if len(m.works) == 0 {
		return works
	}
	for name, w := range m.works {
		cached, ok := named(name)
		if ok && newer(w.work, cached) || !ok && now.Before(w.created.Add(believed)) {
			continue
		}
		delete(m.works, name)
	}
	seen := make(map[types.NamespacedName]bool, len(m.works))
	for i, work := range works {
		name := nameOf(work)
		if w, ok := m.works[name]; ok {
			works[i], seen[name] = w.work, true
		}
	}
	for name, w := range m.works {
		if !seen[name] {
			works = append(works, w.work)
		}
	}
	return works
}

// again is when the first of the works that were made and are not in the cache
// is not believed in any more, or the first failed write is to be repeated; zero
// if there are none.
func (m *memory) again() time.Time {
	var first time.Time
	for _, w := range m.works {
		if !w.created.IsZero() {
			first = earlier(first, w.created.Add(believed))
		}
	}
	for _, f := range m.failed {
		first = earlier(first, f.again)
	}
	return first
}

// fail notes a failed write, and reports whether it is the first.
func (m *memory) fail(name types.NamespacedName, now time.Time) bool {
	f := m.failed[name]
	f.again = now.Add(min(retryAfter<<min(f.tries, 20), retryAfterMax))
	f.tries++
	m.failed[name] = f
	return f.tries == 1
}

// newer reports whether a is a later state of an object than b.
func newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}
