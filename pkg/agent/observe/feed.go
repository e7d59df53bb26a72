package observe

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/agent/object"
)

// feed is one watch and the view that it fills.
type feed struct {
	view *View[*unstructured.Unstructured]
	// lost is called when a list or a watch fails after it went well; it may be
	// nil.
	lost func()

	failing atomic.Bool // the last list or watch failed
	settle  sync.Once
	settled chan struct{} // closed by the first failure
}

func newFeed(changed func(name types.NamespacedName, version string), lost func()) *feed {
	blank := func() *unstructured.Unstructured { return &unstructured.Unstructured{} }
	return &feed{view: NewView(blank, changed), lost: lost, settled: make(chan struct{})}
}

// source says what a feed watches.
type source struct {
	client   dynamic.Interface
	resource dynamic.ResourceInterface // of client
	narrow   func(*metav1.ListOptions) // sets selectors
	name     string                    // for the log
	logger   *slog.Logger
}

// run watches until ctx ends, with back-off while that fails.
func (f *feed) run(ctx context.Context, from source) {
	list := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			from.narrow(&options)
			list, err := from.resource.List(ctx, options)
			f.tried(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			from.narrow(&options)
			w, err := from.resource.Watch(ctx, options)
			f.tried(ctx, err)
			return w, err
		},
	}
	logger := logr.FromSlogHandler(from.logger.Handler())
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(list, from.client),
		&unstructured.Unstructured{}, f.view, cache.ReflectorOptions{Name: from.name, Logger: &logger},
	).RunWithContext(ctx)
}

// tried notes how a list or a watch went.
func (f *feed) tried(ctx context.Context, err error) {
	before := f.failing.Swap(err != nil)
	if err == nil {
		return
	}
	f.settle.Do(func() { close(f.settled) })
	if !before && f.lost != nil && ctx.Err() == nil && isClosed(f.view.Synced()) {
		f.lost()
	}
}

// watched reports whether the feed has delivered, and its watch goes on.
func (f *feed) watched() bool { return !f.failing.Load() && isClosed(f.view.Synced()) }

// live is what is known of an object. While it can not be watched, nothing is:
// what was learnt of it may be out of date, and no event would tell.
func (f *feed) live(name types.NamespacedName) object.Live {
	if f.failing.Load() {
		return object.Live{}
	}
	// Looking whether the list came before looking for the object: the other
	// way round, a list in between would make a present object absent.
	synced := isClosed(f.view.Synced())
	if live, ok := f.view.Get(name); ok {
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
