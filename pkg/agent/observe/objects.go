package observe

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/workwire/workwire/pkg/agent/object"
)

// ObjectsConfig configures [NewObjects].
type ObjectsConfig[K comparable] struct {
	// Client for the agent's cluster. Required.
	Client dynamic.Interface
	// Selector is the label selector of every watch. Required: an empty one
	// would hold all objects of a type.
	Selector string
	// Changed is called with each follower of an object that has changed, and with
	// the resource version at which it has. It must not block. Required.
	Changed func(follower K, ref object.Ref, version string)
	// Logger; required.
	Logger *slog.Logger
}

// Objects is what is known of the objects that works are about. K identifies a
// follower. It is safe for concurrent use.
type Objects[K comparable] struct {
	config ObjectsConfig[K]

	mu      sync.Mutex
	run     context.Context // set while Run runs
	watches sync.WaitGroup
	types   map[schema.GroupVersionResource]*watchedType[K]
}

// watchedType is one resource type that somebody follows. Objects.mu guards its
// fields, but for the feed.
type watchedType[K comparable] struct {
	*feed
	followers map[types.NamespacedName][]K
	stop      context.CancelFunc // ends the watch
}

// NewObjects returns an empty store; Run makes it watch.
func NewObjects[K comparable](config ObjectsConfig[K]) *Objects[K] {
	return &Objects[K]{
		config: config,
		types:  map[schema.GroupVersionResource]*watchedType[K]{},
	}
}

// Run watches what is followed until ctx ends, and returns when all watches
// have. It must be called once.
func (o *Objects[K]) Run(ctx context.Context) error {
	o.mu.Lock()
	o.run = ctx
	for gvr, t := range o.types {
		o.start(gvr, t)
	}
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.run = nil
	o.mu.Unlock()
	o.watches.Wait()
	return nil
}

// Follow replaces the objects whose changes are reported to key: before, as of the previous call,
// by after. A type is watched as long as one of its objects is followed. Calls for one key must not
// run at the same time.
func (o *Objects[K]) Follow(key K, before, after []object.Ref) {
	if slices.Equal(before, after) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ref := range after {
		o.add(key, ref)
	}
	keep := sets.New(after...)
	for _, ref := range before {
		if !keep.Has(ref) {
			o.remove(key, ref)
		}
	}
}

func (o *Objects[K]) add(key K, ref object.Ref) {
	t := o.types[ref.GroupVersionResource]
	if t == nil {
		t = o.newType(ref.GroupVersionResource)
		o.types[ref.GroupVersionResource] = t
		o.start(ref.GroupVersionResource, t)
	}
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	if followers := t.followers[name]; !slices.Contains(followers, key) {
		t.followers[name] = append(followers, key)
	}
}

func (o *Objects[K]) remove(key K, ref object.Ref) {
	t := o.types[ref.GroupVersionResource]
	if t == nil { // it stood twice among what was followed
		return
	}
	name := types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	left := slices.DeleteFunc(t.followers[name], func(other K) bool { return other == key })
	if len(left) > 0 {
		t.followers[name] = left
		return
	}
	delete(t.followers, name)
	if len(t.followers) > 0 {
		return
	}
	delete(o.types, ref.GroupVersionResource)
	if t.stop != nil {
		t.stop()
	}
}

func (o *Objects[K]) newType(gvr schema.GroupVersionResource) *watchedType[K] {
	t := &watchedType[K]{followers: map[types.NamespacedName][]K{}}
	t.feed = newFeed(func(name types.NamespacedName, version string) {
		o.mu.Lock()
		keys := slices.Clone(t.followers[name])
		o.mu.Unlock()
		ref := object.Ref{GroupVersionResource: gvr, Namespace: name.Namespace, Name: name.Name}
		for _, key := range keys {
			o.config.Changed(key, ref, version)
		}
	}, nil)
	return t
}

// start begins to watch t, if Run runs. The caller holds mu.
func (o *Objects[K]) start(gvr schema.GroupVersionResource, t *watchedType[K]) {
	if o.run == nil {
		return
	}
	ctx, stop := context.WithCancel(o.run)
	t.stop = stop
	from := source{
		client: o.config.Client, resource: o.config.Client.Resource(gvr), name: gvr.String(), logger: o.config.Logger,
		narrow: func(options *metav1.ListOptions) { options.LabelSelector = o.config.Selector },
	}
	o.watches.Go(func() { t.run(ctx, from) })
}

// Get returns what is known of ref. While its type can not be watched, nothing
// is: what was learnt of it may be out of date, and no event would tell.
func (o *Objects[K]) Get(ref object.Ref) object.Live {
	t := o.watchedType(ref)
	if t == nil {
		return object.Live{}
	}
	return t.live(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name})
}

// Learn puts in live as a write or a read of ref has just returned it, or, when
// live is nil, that ref is gone. Objects takes its managedFields off. What nobody
// follows is not kept.
func (o *Objects[K]) Learn(ref object.Ref, live *unstructured.Unstructured) {
	t := o.watchedType(ref)
	switch {
	case t == nil:
	case live == nil:
		t.view.Forget(types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, "")
	default:
		t.view.Learn(live)
	}
}

// Others gives who else than key follows ref.
func (o *Objects[K]) Others(ref object.Ref, key K) []K {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.types[ref.GroupVersionResource]
	if t == nil {
		return nil
	}
	followers := t.followers[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}]
	if len(followers) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(followers), func(other K) bool { return other == key })
}

// Watched reports whether gvr is followed and its watch has delivered. Where it
// has not, because it is new or not permitted, changes go unnoticed.
func (o *Objects[K]) Watched(gvr schema.GroupVersionResource) bool {
	o.mu.Lock()
	t := o.types[gvr]
	o.mu.Unlock()
	return t != nil && t.watched()
}

// Wait returns once every type that is followed now has delivered or can not be
// watched, or when ctx ends.
func (o *Objects[K]) Wait(ctx context.Context) {
	o.mu.Lock()
	pending := slices.Collect(maps.Values(o.types))
	o.mu.Unlock()
	for _, t := range pending {
		select {
		case <-t.view.Synced():
		case <-t.settled:
		case <-ctx.Done():
			return
		}
	}
}

func (o *Objects[K]) watchedType(ref object.Ref) *watchedType[K] {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.types[ref.GroupVersionResource]
}
