package observe

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/watchcache"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// watcher is one watch and the cache that it fills.
type watcher struct {
	cache *watchcache.Cache[*unstructured.Unstructured]
	// lost is called when a list or a watch fails after one succeeded.
	lost func()

	failing  atomic.Bool // the last list or watch failed, or run has returned
	failOnce sync.Once
	failed   chan struct{} // closed by the first failure
}

func newWatcher(changed func(name types.NamespacedName, version string), lost func()) *watcher {
	blank := func() *unstructured.Unstructured { return &unstructured.Unstructured{} }
	return &watcher{cache: watchcache.New(blank, changed), lost: lost, failed: make(chan struct{})}
}

// selection is what a watcher watches.
type selection struct {
	client   dynamic.Interface
	resource dynamic.ResourceInterface // of client
	restrict func(*metav1.ListOptions) // sets selectors
	name     string                    // for logs
	logger   *slog.Logger
}

// run watches until ctx ends, and retries with backoff.
func (w *watcher) run(ctx context.Context, s selection) {
	defer w.failing.Store(true) // no event would tell of a change any more
	w.cache.Run(ctx, watchcache.Watch{Name: s.name, Client: s.client, Logger: s.logger, List: listwatch.Of(s.resource, s.restrict, w.noteResult)})
}

// noteResult notes the result of a list or a watch.
func (w *watcher) noteResult(ctx context.Context, err error) {
	before := w.failing.Swap(err != nil)
	if err == nil {
		return
	}
	w.failOnce.Do(func() { close(w.failed) })
	if !before && ctx.Err() == nil && isClosed(w.cache.Synced()) {
		w.lost()
	}
}

// watched reports whether the cache is filled and the watch goes on.
func (w *watcher) watched() bool { return !w.failing.Load() && isClosed(w.cache.Synced()) }

// live returns what is known of an object. That is nothing while the watch fails: what the cache
// has may be out of date, and no event would tell.
func (w *watcher) live(name types.NamespacedName) object.Live {
	if w.failing.Load() {
		return object.Live{}
	}
	// In this order: a list between Get and Synced would make a present object absent.
	synced := isClosed(w.cache.Synced())
	if live, ok := w.cache.Get(name); ok {
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
