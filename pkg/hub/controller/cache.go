package controller

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// WriteTimeout is how long an object that was created or deleted here is taken to be there, or
// gone, although the informer does not show it. After that somebody else must have undone the
// write.
const WriteTimeout = 5 * time.Second

// Object is a pointer to an API object, such as *workv1.ManifestWork.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// KeyOf returns the key of an object: its namespace, if it has one, and its name.
func KeyOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Newer reports whether a is a later state than b, both of one resource on one API server.
func Newer(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

// Cache holds all objects of one resource in memory. [Cache.Get] and [Cache.List] return what the
// informer has seen. [Cache.Latest] and [Cache.LatestList] overlay what controllers have written
// and the informer has not seen yet.
//
// Methods are safe for concurrent use, do no I/O, and return shared objects that must not be
// modified.
type Cache[T Object] struct {
	informers *Informers
	resource  schema.GroupResource
	version   schema.GroupVersionResource
	source    *listWatch
	informer  cache.SharedIndexInformer

	mu        sync.Mutex
	written   map[types.NamespacedName]write[T] // guarded by mu
	nextSweep time.Time                         // guarded by mu
}

// write is a write that the informer has not seen yet.
type write[T Object] struct {
	object  T
	deleted bool
	expires time.Time // of creations and deletions; zero for updates, which the informer always sees
}

func (w write[T]) expired(now time.Time) bool { return !w.expires.IsZero() && !now.Before(w.expires) }

func newCache[T Object](informers *Informers, version schema.GroupVersionResource, example T, source *listWatch) *Cache[T] {
	c := &Cache[T]{
		informers: informers, resource: version.GroupResource(), version: version, source: source, written: make(map[types.NamespacedName]write[T]),
		informer: cache.NewSharedIndexInformer(source.listerWatcher(), example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	// All fail only on an informer that has started.
	_ = c.informer.SetTransform(trim)
	_ = c.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		informers.observeFailure(c.resource, err)
	})
	_, _ = c.AddEventHandler(c.forget)
	return c
}

// AddIndexers adds indexes for [Cache.List]. It must be called before [Informers.Run]. It fails
// when an index of that name exists already.
func (c *Cache[T]) AddIndexers(indexers cache.Indexers) error {
	return c.informer.AddIndexers(indexers)
}

// AddEventHandler has changed called for every change from now on, beginning with each object that
// exists. before is nil when the object is new, after when it is gone. Calls come one at a time,
// and must not block. They end with [Cache.RemoveEventHandler].
func (c *Cache[T]) AddEventHandler(changed func(before, after T)) (cache.ResourceEventHandlerRegistration, error) {
	var none T
	typed := func(object any) T {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		t, _ := object.(T)
		return t
	}
	notify := func(before, after T) {
		if before != none || after != none {
			changed(before, after)
		}
	}
	return c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { notify(none, typed(object)) },
		UpdateFunc: func(before, after any) { notify(typed(before), typed(after)) },
		DeleteFunc: func(object any) { notify(typed(object), none) },
	})
}

// RemoveEventHandler ends what [Cache.AddEventHandler] began. A call may still be under way.
func (c *Cache[T]) RemoveEventHandler(registration cache.ResourceEventHandlerRegistration) {
	_ = c.informer.RemoveEventHandler(registration) // fails only for the handler of another informer
}

// WaitForSync waits until the cache holds all objects, and reports false when ctx ended before.
func (c *Cache[T]) WaitForSync(ctx context.Context) bool {
	return waitFor(ctx, c.informer.HasSyncedChecker().Done())
}

// Ready returns why the cache does not hold all objects yet; nil once it does.
func (c *Cache[T]) Ready(context.Context) error {
	if c.informer.HasSynced() {
		return nil
	}
	return c.informers.failure(c.resource)
}

// current returns why the cache does not hold all objects, or is not kept up to date; nil if it is.
func (c *Cache[T]) current() error {
	if err := c.informers.lastFailure(c.resource); err != nil || c.informer.HasSynced() {
		return err
	}
	return c.informers.failure(c.resource)
}

// run keeps the cache up to date until ctx ends.
func (c *Cache[T]) run(ctx context.Context) { c.informer.RunWithContext(ctx) }

// Len returns the number of objects.
func (c *Cache[T]) Len() int { return len(c.informer.GetIndexer().ListKeys()) }

// IndexValues returns all values of an index.
func (c *Cache[T]) IndexValues(index string) []string {
	return c.informer.GetIndexer().ListIndexFuncValues(index)
}

// Get returns the object with key as the informer has it.
func (c *Cache[T]) Get(key types.NamespacedName) (T, bool) {
	object, _, _ := c.informer.GetIndexer().GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
	t, ok := object.(T)
	return t, ok
}

// All returns all objects as the informer has them, in no order.
func (c *Cache[T]) All() []T { return typed[T](c.informer.GetIndexer().List()) }

// List returns the objects with this value of an index as the informer has them, in no order. It
// returns none for an index that does not exist.
func (c *Cache[T]) List(index, value string) []T {
	objects, err := c.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil
	}
	return typed[T](objects)
}

func typed[T any](objects []any) []T {
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		if t, ok := object.(T); ok {
			list = append(list, t)
		}
	}
	return list
}

// Latest returns the object with key as it was last seen or written here.
func (c *Cache[T]) Latest(key types.NamespacedName) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest(key)
}

// latest is [Cache.Latest] with mu held.
func (c *Cache[T]) latest(key types.NamespacedName) (T, bool) {
	var none T
	cached, ok := c.Get(key)
	w, wrote := c.written[key]
	expired := w.expired(c.informers.cfg.Now())
	switch {
	case !wrote, w.deleted && (expired || ok && cached.GetUID() != w.object.GetUID()):
		return cached, ok
	case w.deleted, !ok && (w.expires.IsZero() || expired):
		return none, false
	case ok && !Newer(w.object, cached):
		return cached, true
	}
	return w.object, true
}

// LatestList is [Cache.List] with each object as it was last seen or written here. It also costs
// one look at each write that the informer has not seen yet.
func (c *Cache[T]) LatestList(index, value string) []T {
	list := c.List(index, value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.written) == 0 {
		return list
	}
	list = slices.DeleteFunc(list, func(object T) bool { _, wrote := c.written[KeyOf(object)]; return wrote })
	values := c.informer.GetIndexer().GetIndexers()[index]
	for key := range c.written {
		object, ok := c.latest(key)
		if !ok || values == nil {
			continue
		}
		if of, err := values(object); err == nil && slices.Contains(of, value) {
			list = append(list, object)
		}
	}
	return list
}

// Created records an object that the API server returned when it was created here.
func (c *Cache[T]) Created(object T) {
	c.record(object, write[T]{object: object, expires: c.informers.cfg.Now().Add(WriteTimeout)})
}

// Wrote records an object that the API server returned when it was updated or patched here. It is
// ignored if the object is already gone.
func (c *Cache[T]) Wrote(object T) { c.record(object, write[T]{object: object}) }

// Deleted records that an object was deleted here. It must be one that goes at once, without
// finalizers.
func (c *Cache[T]) Deleted(object T) {
	c.record(object, write[T]{object: object, deleted: true, expires: c.informers.cfg.Now().Add(WriteTimeout)})
}

func (c *Cache[T]) record(object T, w write[T]) {
	_, _ = trim(object)
	key := KeyOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweep()
	cached, seen := c.Get(key)
	before, wrote := c.written[key]
	switch {
	case w.deleted:
		if !wrote && !seen {
			return
		}
	case seen && !Newer(object, cached), wrote && !Newer(object, before.object):
		return // the informer, or a later write, was faster
	case w.expires.IsZero() && !seen:
		if !wrote || before.object.GetUID() != object.GetUID() || before.deleted {
			return // gone already
		}
		w.expires = before.expires
	}
	c.written[key] = w
}

// sweep drops, now and then, creations and deletions that the informer never showed. mu is held.
func (c *Cache[T]) sweep() {
	now := c.informers.cfg.Now()
	if now.Before(c.nextSweep) {
		return
	}
	c.nextSweep = now.Add(WriteTimeout)
	for key, w := range c.written {
		if _, ok := c.Get(key); w.expired(now) && (w.deleted || !ok) {
			delete(c.written, key)
		}
	}
}

// forget drops a write once the informer has caught up with it.
func (c *Cache[T]) forget(before, after T) {
	var none T
	seen := cmp.Or(after, before)
	key := KeyOf(seen)
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.written[key]
	if !ok {
		return
	}
	var caughtUp bool
	switch same := w.object.GetUID() == seen.GetUID(); {
	case after == none:
		caughtUp = same
	case w.deleted: // another object has its name, or a finalizer holds it
		caughtUp = !same && Newer(seen, w.object) || same && seen.GetDeletionTimestamp() != nil
	default:
		// An object that goes back was restored from a backup: the write is lost.
		caughtUp = !Newer(w.object, seen) || before != none && before.GetUID() == seen.GetUID() && Newer(before, seen)
	}
	if caughtUp {
		delete(c.written, key)
	}
}

// waitFor waits until done is closed, and reports false when ctx ended before.
func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-done:
		return true
	}
}
