package observe

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/watchcache"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// Config configures [New].
type Config struct {
	// Client for the agent's cluster. Required.
	Client dynamic.Interface
	// Selector is the label selector of every watch, which is one of a resource type. Without it,
	// every watch is one of a single object.
	Selector string
	// Max is the maximum number of watches at a time; 0 or less: none.
	Max int
	// Changed is called with each name that follows a changed object, and with the resource version
	// of the change; that is empty if the watch of a single object was lost. It must not block.
	// Required.
	Changed func(name string, ref object.Ref, version string)
	// Relisted is called when the objects of a watch were listed again, before the changes that the
	// list shows. It must not block. Default: nothing is called.
	Relisted func()
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Watches watches the objects that are followed. What is beyond the limit waits, in the order in
// which it was first followed, until something watched is not followed any more. It is safe for
// concurrent use.
type Watches struct {
	config Config
	wake   chan struct{} // holds a token when a watch may start

	mu      sync.Mutex
	scopes  map[object.Ref]*watched
	waiting []*watched // for a watch, the longest first
	running int        // watches that have not ended
}

// New returns a Watches without watches, which start with Run.
func New(config Config) *Watches {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Watches{config: config, wake: make(chan struct{}, 1), scopes: map[object.Ref]*watched{}}
}

// Run watches what is followed until ctx ends. It returns when all watches have ended, and must be
// called once.
func (w *Watches) Run(ctx context.Context) error {
	var watches sync.WaitGroup
	defer watches.Wait()
	for {
		for watching, t := w.next(ctx); t != nil; watching, t = w.next(ctx) {
			watches.Go(func() {
				w.watch(watching, t)
				w.ended(t)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
		}
	}
}

// Follow replaces the objects whose changes are reported to name: before, as of the previous call,
// by after. A type or an object is watched as long as something of it is followed. Calls for one
// name must not run at the same time.
func (w *Watches) Follow(name string, before, after []object.Ref) {
	if slices.Equal(before, after) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range after {
		w.add(name, ref)
	}
	keep := sets.New(after...)
	for _, ref := range before {
		if !keep.Has(ref) {
			w.remove(name, ref)
		}
	}
}

func (w *Watches) add(name string, ref object.Ref) {
	scope := w.scope(ref)
	t := w.scopes[scope]
	if t == nil {
		t = w.newWatched(scope)
		w.scopes[scope] = t
		w.waiting = append(w.waiting, t)
		w.wakeRun()
	}
	key := namespacedName(ref)
	if followers := t.followers[key]; !slices.Contains(followers, name) {
		t.followers[key] = append(followers, name)
	}
}

func (w *Watches) remove(name string, ref object.Ref) {
	t := w.scopes[w.scope(ref)]
	if t == nil { // ref was followed twice, and is removed
		return
	}
	key := namespacedName(ref)
	left := slices.DeleteFunc(t.followers[key], func(other string) bool { return other == name })
	if len(left) > 0 {
		t.followers[key] = left
		return
	}
	delete(t.followers, key)
	if len(t.followers) > 0 {
		return
	}
	delete(w.scopes, t.scope)
	if t.stop != nil {
		t.stop()
		return
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(other *watched) bool { return other == t })
}

func (w *Watches) newWatched(scope object.Ref) *watched {
	t := &watched{scope: scope, followers: map[types.NamespacedName][]string{}, failed: make(chan struct{})}
	changed := func(key types.NamespacedName, version string) {
		w.mu.Lock()
		followers := slices.Clone(t.followers[key])
		w.mu.Unlock()
		ref := object.Ref{GroupVersionResource: scope.GroupVersionResource, Namespace: key.Namespace, Name: key.Name}
		for _, name := range followers {
			w.config.Changed(name, ref, version)
		}
	}
	// A type has no followers of its own: that its watch is lost would concern all names at once.
	t.lost = func() { changed(namespacedName(scope), "") }
	t.cache = watchcache.New(func() *unstructured.Unstructured { return &unstructured.Unstructured{} }, changed)
	t.cache.OnRelist(w.config.Relisted)
	return t
}

// wakeRun has Run start the watches that may start.
func (w *Watches) wakeRun() {
	select {
	case w.wake <- struct{}{}:
	default: // Run has yet to receive the last token
	}
}

// next returns what to watch next, and the context of its watch; nil if none may start.
func (w *Watches) next(ctx context.Context) (context.Context, *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil || len(w.waiting) == 0 || w.running >= w.config.Max {
		return nil, nil
	}
	t := w.waiting[0]
	w.waiting = slices.Delete(w.waiting, 0, 1)
	w.running++
	ctx, t.stop = context.WithCancel(ctx)
	return ctx, t
}

// ended notes that the watch of t has ended, so that another may start.
func (w *Watches) ended(t *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.stop() // it may have ended with Run
	w.running--
	w.wakeRun()
}

// watch watches what t shows until ctx ends, and retries with backoff.
func (w *Watches) watch(ctx context.Context, t *watched) {
	defer t.failing.Store(true) // no event would tell of a change any more
	name, field := t.scope.GroupVersionResource.String(), ""
	if t.scope.Name != "" {
		name, field = t.scope.String(), fields.OneTermEqualSelector("metadata.name", t.scope.Name).String()
	}
	resource := w.config.Client.Resource(t.scope.GroupVersionResource).Namespace(t.scope.Namespace)
	t.cache.Run(ctx, watchcache.Watch{Name: name, Client: w.config.Client, Logger: w.config.Logger, List: listwatch.Of(resource, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = w.config.Selector, field
	}, t.noteResult)})
}

// Get returns what is known of ref. That is nothing unless its watch has delivered and goes on, or
// [Watches.Learn] told of it.
func (w *Watches) Get(ref object.Ref) object.Live {
	t := w.of(ref)
	if t == nil {
		return object.Live{}
	}
	return t.live(namespacedName(ref))
}

// Learn adds the response to a write or read of ref: live, or nil if ref is gone. It removes the
// managedFields of live. It ignores what is not followed.
func (w *Watches) Learn(ref object.Ref, live *unstructured.Unstructured) {
	t := w.of(ref)
	switch {
	case t == nil:
	case live == nil:
		t.cache.Forget(namespacedName(ref), "")
	default:
		t.cache.Learn(live)
	}
}

// Others returns the names other than name that follow ref.
func (w *Watches) Others(ref object.Ref, name string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.scopes[w.scope(ref)]
	if t == nil {
		return nil
	}
	followers := t.followers[namespacedName(ref)]
	if len(followers) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(followers), func(other string) bool { return other == name })
}

// Watched reports whether gvr, a type, is followed and its watch works. If not, because the watch
// has yet to deliver or is forbidden, changes are not noticed.
func (w *Watches) Watched(gvr schema.GroupVersionResource) bool {
	t := w.of(object.Ref{GroupVersionResource: gvr})
	return t != nil && t.delivers()
}

// Wait returns once the watch of all that is followed now has delivered or failed, or when ctx ends.
func (w *Watches) Wait(ctx context.Context) {
	w.mu.Lock()
	pending := slices.Collect(maps.Values(w.scopes))
	w.mu.Unlock()
	for _, t := range pending {
		select {
		case <-t.cache.Synced():
		case <-t.failed:
		case <-ctx.Done():
			return
		}
	}
}

// scope returns what the watch that shows ref watches.
func (w *Watches) scope(ref object.Ref) object.Ref {
	if w.config.Selector != "" {
		return object.Ref{GroupVersionResource: ref.GroupVersionResource}
	}
	return ref
}

// of returns the watch that shows ref, nil if there is none.
func (w *Watches) of(ref object.Ref) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.scopes[w.scope(ref)]
}
