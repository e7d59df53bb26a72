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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/internal/object"
)

// ObjectsConfig configures [NewObjects].
type ObjectsConfig struct {
	// Client for the agent's cluster. Required.
	Client dynamic.Interface
	// Selector is the label selector of every watch. Required: an empty selector would hold all
	// objects of a type.
	Selector string
	// Changed is called with each name that follows a changed object, and with the resource version
	// of the change. It must not block. Required.
	Changed func(name string, ref object.Ref, version string)
	// Relisted is called when a type was listed again, before the changes that the list shows. It
	// must not block. Default: nothing is called.
	Relisted func()
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Objects watches the resource types of the objects that are followed. It is safe for concurrent
// use.
type Objects struct {
	config  ObjectsConfig
	watches sync.WaitGroup

	mu sync.Mutex
	// begin starts a watch and returns the function that ends it. It is set while Run runs.
	begin func(watch func(context.Context)) context.CancelFunc
	types map[schema.GroupVersionResource]*watchedType
}

// watchedType is a resource type with followers. Objects.mu guards its fields, except the watcher.
type watchedType struct {
	*watcher
	followers map[types.NamespacedName][]string
	stop      context.CancelFunc // ends the watch
}

// NewObjects returns an Objects without watches, which start with Run.
func NewObjects(config ObjectsConfig) *Objects {
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Objects{config: config, types: map[schema.GroupVersionResource]*watchedType{}}
}

// Run watches the followed types until ctx ends. It returns when all watches have ended, and must
// be called once.
func (o *Objects) Run(ctx context.Context) error {
	o.mu.Lock()
	o.begin = func(watch func(context.Context)) context.CancelFunc {
		ctx, stop := context.WithCancel(ctx)
		o.watches.Go(func() { watch(ctx) })
		return stop
	}
	for gvr, t := range o.types {
		o.start(gvr, t)
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.begin = nil
	o.mu.Unlock()
	o.watches.Wait()
	return nil
}

// Follow replaces the objects whose changes are reported to name: before, as of the previous call,
// by after. A type is watched as long as one of its objects is followed. Calls for one name must
// not run at the same time.
func (o *Objects) Follow(name string, before, after []object.Ref) {
	o.mu.Lock()
	defer o.mu.Unlock()
	follow(name, before, after, o.add, o.remove)
}

func (o *Objects) add(name string, ref object.Ref) {
	t := o.types[ref.GroupVersionResource]
	if t == nil {
		t = o.newType(ref.GroupVersionResource)
		o.types[ref.GroupVersionResource] = t
		o.start(ref.GroupVersionResource, t)
	}
	key := namespacedName(ref)
	if followers := t.followers[key]; !slices.Contains(followers, name) {
		t.followers[key] = append(followers, name)
	}
}

func (o *Objects) remove(name string, ref object.Ref) {
	t := o.types[ref.GroupVersionResource]
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
	delete(o.types, ref.GroupVersionResource)
	if t.stop != nil {
		t.stop()
	}
}

func (o *Objects) newType(gvr schema.GroupVersionResource) *watchedType {
	t := &watchedType{followers: map[types.NamespacedName][]string{}}
	t.watcher = newWatcher(func(key types.NamespacedName, version string) {
		o.mu.Lock()
		followers := slices.Clone(t.followers[key])
		o.mu.Unlock()
		ref := object.Ref{GroupVersionResource: gvr, Namespace: key.Namespace, Name: key.Name}
		for _, name := range followers {
			o.config.Changed(name, ref, version)
		}
	}, nil)
	t.cache.OnRelist(o.config.Relisted)
	return t
}

// start starts the watch of t if Run runs. The caller holds mu.
func (o *Objects) start(gvr schema.GroupVersionResource, t *watchedType) {
	if o.begin == nil {
		return
	}
	t.stop = o.begin(func(ctx context.Context) {
		t.run(ctx, selection{
			client: o.config.Client, resource: o.config.Client.Resource(gvr), name: gvr.String(), logger: o.config.Logger,
			restrict: func(options *metav1.ListOptions) { options.LabelSelector = o.config.Selector },
		})
	})
}

// Get returns what is known of ref. That is nothing while its type cannot be watched.
func (o *Objects) Get(ref object.Ref) object.Live {
	t := o.watchedType(ref.GroupVersionResource)
	if t == nil {
		return object.Live{}
	}
	return t.live(namespacedName(ref))
}

// Learn adds the response to a write or read of ref: live, or nil if ref is gone. It removes the
// managedFields of live. It ignores types that are not followed.
func (o *Objects) Learn(ref object.Ref, live *unstructured.Unstructured) {
	t := o.watchedType(ref.GroupVersionResource)
	switch {
	case t == nil:
	case live == nil:
		t.cache.Forget(namespacedName(ref), "")
	default:
		t.cache.Learn(live)
	}
}

// Others returns the names other than name that follow ref.
func (o *Objects) Others(ref object.Ref, name string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.types[ref.GroupVersionResource]
	if t == nil {
		return nil
	}
	followers := t.followers[namespacedName(ref)]
	if len(followers) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(followers), func(other string) bool { return other == name })
}

// Watched reports whether gvr is followed and its watch works. If not, because the watch has yet to
// deliver or is forbidden, changes are not noticed.
func (o *Objects) Watched(gvr schema.GroupVersionResource) bool {
	t := o.watchedType(gvr)
	return t != nil && t.watched()
}

// Wait returns once the watch of each type that is followed now has delivered or failed, or when
// ctx ends.
func (o *Objects) Wait(ctx context.Context) {
	o.mu.Lock()
	pending := slices.Collect(maps.Values(o.types))
	o.mu.Unlock()
	for _, t := range pending {
		select {
		case <-t.cache.Synced():
		case <-t.failed:
		case <-ctx.Done():
			return
		}
	}
}

func (o *Objects) watchedType(gvr schema.GroupVersionResource) *watchedType {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.types[gvr]
}
