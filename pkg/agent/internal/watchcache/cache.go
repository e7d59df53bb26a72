// Package watchcache holds the objects of one watch in memory, together with the results of writes
// that the watch has not shown yet.
//
//	objects := watchcache.New(blank, changed)
//	go objects.Run(ctx, watchcache.Watch{Name: "configmaps", List: list, Client: client, Logger: logger})
//	live, ok := objects.Get(name)
//	...
//	objects.Learn(updated) // the response to a write
//
// Resource versions keep the two in order: neither replaces what is newer.
package watchcache

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/runtime/compress"
)

// Cache holds the objects of one resource type. It implements the store of a reflector;
// [Cache.Learn] and [Cache.Forget] add the results of writes. It is safe for concurrent use.
// Objects are held compressed; the caller owns each object returned.
type Cache[T interface {
	metav1.Object
	runtime.Object
}] struct {
	blank    func() T
	changed  func(name types.NamespacedName, version string)
	relisted func() // nil: nobody needs to know
	codec    compress.Codec

	mu       sync.Mutex
	items    map[types.NamespacedName]item
	version  string // newest resource version that the watch has passed
	synced   chan struct{}
	isSynced bool
}

// item is an object and its resource version.
type item struct {
	version string
	data    compress.Data
}

var (
	_ cache.ReflectorStore         = (*Cache[*unstructured.Unstructured])(nil)
	_ cache.ReflectorBookmarkStore = (*Cache[*unstructured.Unstructured])(nil)
	_ cache.TransformingStore      = (*Cache[*unstructured.Unstructured])(nil)
)

// New returns an empty cache. blank returns an empty object. changed is called, with no lock held,
// for each object that the watch shows to differ from the cache, with the resource version at which
// it does: "" after a restore of the API server, since which versions compare no more. It must not
// block.
func New[T interface {
	metav1.Object
	runtime.Object
}](blank func() T, changed func(name types.NamespacedName, version string)) *Cache[T] {
	return &Cache[T]{
		blank:   blank,
		changed: changed,
		items:   map[types.NamespacedName]item{},
		synced:  make(chan struct{}),
	}
}

// OnRelist has relisted called when a list after the first one has come, before the changes that it
// shows. Call it before Run. Relisted must not block.
func (c *Cache[T]) OnRelist(relisted func()) { c.relisted = relisted }

// Watch is what a cache is filled from.
type Watch struct {
	// Name for logs.
	Name string
	// List lists and watches the objects.
	List *cache.ListWatch
	// Client that List uses; it determines whether lists can be streamed by the watch.
	Client any
	// NotServed is what to do if the API server does not serve the objects. Optional.
	NotServed string
	// Logger for failures.
	Logger *slog.Logger
}

// Run fills the cache until ctx ends. It retries with backoff, and logs each cause of a failure once,
// with a reminder every hour.
func (c *Cache[T]) Run(ctx context.Context, w Watch) {
	logger := logr.FromSlogHandler(quiet{w.Logger.Handler()})
	failures := &failures{name: w.Name, notServed: w.NotServed, logger: w.Logger}
	cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(failures.source(w.List), w.Client), c.blank(), c,
		cache.ReflectorOptions{Name: w.Name, Logger: &logger},
	).RunWithContext(klog.NewContext(ctx, logger))
}

// Synced returns a channel that is closed once the cache has been filled from a list.
func (c *Cache[T]) Synced() <-chan struct{} { return c.synced }

// Get returns the object, and whether it exists. Before the cache is synced, an object that is not
// found may exist.
func (c *Cache[T]) Get(name types.NamespacedName) (T, bool) {
	c.mu.Lock()
	held, ok := c.items[name]
	c.mu.Unlock()
	if !ok {
		var none T
		return none, false
	}
	return c.decode(held), true
}

// All yields the objects in the cache at the time of the call.
func (c *Cache[T]) All() iter.Seq[T] {
	c.mu.Lock()
	items := maps.Clone(c.items)
	c.mu.Unlock()
	return func(yield func(T) bool) {
		for _, held := range items {
			if !yield(c.decode(held)) {
				return
			}
		}
	}
}

// Learn adds an object that the API server has just returned. It removes the object's
// managedFields. It ignores an object that the watch has overtaken.
func (c *Cache[T]) Learn(written T) {
	written.SetManagedFields(nil)
	learnt, err := c.encode(written)
	if err != nil {
		return // the watch will deliver the object, and return the error
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := nameOf(written)
	known, exists := c.items[name]
	if exists && !object.Newer(learnt.version, known.version) {
		return
	}
	if c.version != "" && !object.Newer(learnt.version, c.version) {
		return
	}
	c.items[name] = learnt
}

// Forget removes an object that the API server has just reported gone. If uid is not empty, an
// object with another UID stays.
func (c *Cache[T]) Forget(name types.NamespacedName, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, exists := c.items[name]; exists && (uid == "" || c.decode(known).GetUID() == uid) {
		delete(c.items, name)
	}
}

// Add implements [cache.ReflectorStore].
func (c *Cache[T]) Add(object any) error { return c.Update(object) }

// Update implements [cache.ReflectorStore].
func (c *Cache[T]) Update(object any) error {
	typed, err := c.typed(object)
	if err != nil {
		return err
	}
	name, version := nameOf(typed), typed.GetResourceVersion()
	if c.skip(name, version) {
		return nil
	}
	encoded, err := c.encode(typed)
	if err != nil {
		return err
	}
	c.mu.Lock()
	// Not earlier: Learn drops everything up to the version that the watch has passed.
	c.advance(version)
	fresh := c.isNewer(name, version)
	if fresh {
		c.items[name] = encoded
	}
	c.mu.Unlock()
	if fresh {
		c.changed(name, version)
	}
	return nil
}

// skip reports whether version of an object is already known, and if so lets the watch pass it.
// Most events are the echo of a write, which need not be encoded again.
func (c *Cache[T]) skip(name types.NamespacedName, version string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isNewer(name, version) {
		return false
	}
	c.advance(version)
	return true
}

// isNewer reports whether version is later than what is known of the object. The caller holds mu.
func (c *Cache[T]) isNewer(name types.NamespacedName, version string) bool {
	known, exists := c.items[name]
	return !exists || object.Newer(version, known.version)
}

// Delete implements [cache.ReflectorStore]. last is the last state, with the resource version of
// the deletion.
func (c *Cache[T]) Delete(last any) error {
	typed, err := c.typed(last)
	if err != nil {
		return err
	}
	name, version := nameOf(typed), typed.GetResourceVersion()
	c.mu.Lock()
	c.advance(version)
	known, exists := c.items[name]
	gone := exists && !object.Newer(known.version, version)
	if gone {
		delete(c.items, name)
	}
	c.mu.Unlock()
	// Even if Forget has removed the object, its followers have yet to be notified.
	if gone || !exists {
		c.changed(name, version)
	}
	return nil
}

// Replace implements [cache.ReflectorStore]. list has all objects as of version. What is known to
// be newer stays; where versions cannot be compared, the list counts. A version before the one that the watch has passed is that of an API server that
// was restored from a backup: only the list counts then, and all objects count as changed.
func (c *Cache[T]) Replace(list []any, version string) error {
	items := make(map[types.NamespacedName]item, len(list))
	for _, object := range list {
		typed, err := c.typed(object)
		if err != nil {
			return err
		}
		if items[nameOf(typed)], err = c.encode(typed); err != nil {
			return err
		}
	}
	c.mu.Lock()
	restored := c.version != "" && object.Older(version, c.version)
	changes := map[types.NamespacedName]string{}
	for name, known := range c.items {
		listed, ok := items[name]
		switch {
		case !restored && object.Older(version, known.version):
			items[name] = known // from a write that the list does not show yet
		case restored, ok && object.Older(listed.version, known.version):
			changes[name] = "" // later than any write before the restore
		case !ok:
			changes[name] = version // gone
		case listed.version != known.version:
			changes[name] = listed.version
		}
	}
	for name, listed := range items {
		if _, ok := c.items[name]; !ok {
			changes[name] = listed.version
		}
	}
	c.items = items
	if restored {
		c.version = version
	}
	c.advance(version)
	again := c.isSynced
	if !again {
		c.isSynced = true
		close(c.synced)
	}
	c.mu.Unlock()
	if again && c.relisted != nil {
		c.relisted()
	}
	for name, version := range changes {
		c.changed(name, version)
	}
	return nil
}

// Bookmark implements [cache.ReflectorBookmarkStore].
func (c *Cache[T]) Bookmark(version string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(version)
	return nil
}

// Resync implements [cache.ReflectorStore]. It does nothing.
func (c *Cache[T]) Resync() error { return nil }

// Transformer implements [cache.TransformingStore]. It removes managedFields, which are half of a
// small object.
func (c *Cache[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			typed.SetManagedFields(nil)
		}
		return object, nil
	}
}

// advance notes that the watch has passed version. The caller holds mu.
func (c *Cache[T]) advance(version string) {
	if c.version == "" || object.Newer(version, c.version) {
		c.version = version
	}
}

func (c *Cache[T]) encode(object T) (item, error) {
	data, err := c.codec.Encode(content(object))
	if err != nil {
		return item{}, fmt.Errorf("cache %s: %w", nameOf(object), err)
	}
	return item{version: object.GetResourceVersion(), data: data}, nil
}

func (c *Cache[T]) decode(held item) T {
	object := c.blank()
	c.codec.Decode(held.data, content(object))
	return object
}

// content returns the pointer that an object is encoded from and decoded to.
func content(object metav1.Object) any {
	if u, ok := object.(*unstructured.Unstructured); ok {
		return &u.Object
	}
	return object
}

func (c *Cache[T]) typed(object any) (T, error) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	typed, ok := object.(T)
	if !ok {
		var want T
		return want, fmt.Errorf("the watch delivered a %T instead of a %T", object, want)
	}
	return typed, nil
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
