package observe

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/watchcache"
)

// watched is what one watch shows: a resource type, or an object. Watches.mu guards followers and
// stop.
type watched struct {
	scope     object.Ref // without a name for a type
	followers map[types.NamespacedName][]string
	stop      context.CancelFunc // ends the watch; nil before it starts

	cache *watchcache.Cache[*unstructured.Unstructured]
	// lost is called when a list or a watch fails after one succeeded.
	lost func()

	failing  atomic.Bool // the last list or watch failed, or the watch has ended
	failOnce sync.Once
	failed   chan struct{} // closed by the first failure
}

// noteResult notes the result of a list or a watch.
func (t *watched) noteResult(ctx context.Context, err error) {
	before := t.failing.Swap(err != nil)
	if err == nil {
		return
	}
	t.failOnce.Do(func() { close(t.failed) })
	if !before && ctx.Err() == nil && isClosed(t.cache.Synced()) {
		t.lost()
	}
}

// delivers reports whether the cache is filled and the watch goes on.
func (t *watched) delivers() bool { return !t.failing.Load() && isClosed(t.cache.Synced()) }

// live returns what is known of an object. That is nothing while the watch fails: what the cache
// has may be out of date, and no event would tell.
func (t *watched) live(name types.NamespacedName) object.Live {
	if t.failing.Load() {
		return object.Live{}
	}
	// In this order: a list between Get and Synced would make a present object absent.
	synced := isClosed(t.cache.Synced())
	if live, ok := t.cache.Get(name); ok {
		return object.Live{State: object.Present, Object: live}
	}
	if synced {
		return object.Live{State: object.Absent}
	}
	return object.Live{}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func namespacedName(ref object.Ref) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}
