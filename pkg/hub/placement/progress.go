package placement

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// echoTimeout is how long a write is waited for to come back over the watch. A
// write that never does is one that somebody else has undone at once.
const echoTimeout = 5 * time.Second

// progress knows, for each placement, when it was looked at last, and what was
// written then. A look that does not see yet what the last one wrote would choose
// anew, and write again. Its methods may be called from any goroutine.
type progress struct {
	mu sync.Mutex
	of map[types.NamespacedName]*state // guarded by mu
}

type state struct {
	looked  time.Time
	wrote   time.Time // when echoes got its last
	awaited []echo
}

// echo is a write that is to be seen in the cache.
type echo struct {
	name      string
	uid       types.UID
	version   string // the resource version it led to; empty: the object is deleted
	placement bool   // of the Placement, not of a PlacementDecision
}

func newProgress() *progress { return &progress{of: make(map[types.NamespacedName]*state)} }

// state gives what is known of key. The caller holds mu.
func (p *progress) state(key types.NamespacedName) *state {
	s := p.of[key]
	if s == nil {
		s = &state{}
		p.of[key] = s
	}
	return s
}

// looked notes that key is looked at.
func (p *progress) looked(key types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state(key).looked = now
}

// rest is for how long key is better left alone, so that many changes cost one
// look.
func (p *progress) rest(key types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.of[key]; s != nil {
		return pause - now.Sub(s.looked)
	}
	return 0
}

// forget forgets key.
func (p *progress) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, key)
}

// await notes a write for key.
func (p *progress) await(key types.NamespacedName, e echo, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.state(key)
	s.awaited, s.wrote = append(s.awaited, e), now
}

// behind tells whether the caches do not show yet what was written for key, and
// for how long at most that is to be waited for; 0: they do.
func (p *progress) behind(key types.NamespacedName, placements, decisions cache.Store, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.of[key]
	if s == nil {
		return 0
	}
	rest := s.awaited[:0]
	for _, e := range s.awaited {
		store := decisions
		if e.placement {
			store = placements
		}
		if !e.seen(store, key.Namespace) {
			rest = append(rest, e)
		}
	}
	s.awaited = rest
	wait := echoTimeout - now.Sub(s.wrote)
	if len(rest) == 0 || wait <= 0 {
		s.awaited = nil
		return 0
	}
	return wait
}

// seen reports whether the cache shows the write.
func (e echo) seen(store cache.Store, namespace string) bool {
	object, ok, err := store.GetByKey(namespace + "/" + e.name)
	if err != nil {
		return true
	}
	held, isObject := object.(metav1.Object)
	switch {
	case e.placement && !ok:
		return true // it was there when it was written to
	case !ok:
		return e.version == ""
	case !isObject || held.GetUID() != e.uid:
		return true // another has taken its place
	case e.version == "":
		return false
	}
	order, err := resourceversion.CompareResourceVersion(held.GetResourceVersion(), e.version)
	return err != nil || order >= 0
}
