package controller

import (
	"context"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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

// Held is what a [Codec] makes a cache hold in place of an object: it is smaller, and dearer to read.
type Held[T Object] interface {
	identity
	// Object returns the object, which must not be modified.
	Object() T
}

// identity is what is read of every object that is held, without the rest of it.
type identity interface {
	metav1.ObjectMetaAccessor // namespace and name
	// Key returns namespace and name. They must not be kept: they may keep the whole object in memory.
	Key() types.NamespacedName
	// UID and ResourceVersion return those of the object.
	UID() types.UID
	ResourceVersion() string
}

// Codec makes the objects of a resource small for as long as a cache holds them. The zero value leaves
// them as they are.
type Codec[T Object] struct {
	// Hold returns what is held in place of an object: a [Held], or object itself. It may modify it.
	Hold func(object T) any
	// Pack makes an object that was written here small, in place.
	Pack func(object T)
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
	codec     Codec[T]

	size atomic.Int64 // objects that forget has seen to come and not to go

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

func newCache[T Object](informers *Informers, version schema.GroupVersionResource, example T, codec Codec[T], source *listWatch) *Cache[T] {
	c := &Cache[T]{
		informers: informers, resource: version.GroupResource(), version: version, source: source, codec: codec, written: make(map[types.NamespacedName]write[T]),
		informer: cache.NewSharedIndexInformer(source.listerWatcher(), example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	// All fail only on an informer that has started.
	_ = c.informer.SetTransform(c.hold)
	_ = c.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		informers.observeFailure(c.resource, err)
	})
	_, _ = c.addIdentityHandler(c.forget)
	return c
}

// hold is the transformer of the informer: it trims an object and returns it as it is held.
func (c *Cache[T]) hold(object any) (any, error) {
	trim(object)
	if t, ok := object.(T); ok && c.codec.Hold != nil {
		return c.codec.Hold(t), nil
	}
	return object, nil
}

// held returns an object that [Cache.hold] returned as users of the cache see it.
func held[T Object](object any) (T, bool) {
	if h, ok := object.(Held[T]); ok {
		return h.Object(), true
	}
	t, ok := object.(T)
	return t, ok
}

// AddIndexers adds indexes for [Cache.List], of functions of T. It must be called before
// [Informers.Run]. It fails when an index of that name exists already.
func (c *Cache[T]) AddIndexers(indexers cache.Indexers) error {
	typed := make(cache.Indexers, len(indexers))
	for name, values := range indexers {
		typed[name] = func(object any) ([]string, error) {
			t, ok := held[T](object)
			if !ok {
				return nil, nil
			}
			return values(t)
		}
	}
	return c.informer.AddIndexers(typed)
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
		t, _ := held[T](object)
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

// heldObject is an object of the informer as it was held, and its identity, which is cheap to read. Its zero
// value is none.
type heldObject struct {
	object  any
	key     types.NamespacedName
	version version
}

func (s *heldObject) exists() bool { return s.object != nil }

// heldObjectOf returns an object that [Cache.hold] returned.
func heldObjectOf(object any) heldObject {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	if h, ok := object.(identity); ok {
		return heldObject{object: object, key: h.Key(), version: version{uid: h.UID(), resourceVersion: h.ResourceVersion()}}
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return heldObject{}
	}
	return heldObject{object: object, key: KeyOf(m), version: versionOf(m)}
}

// addIdentityHandler is [Cache.AddEventHandler] for what needs no more than identities: it reads no
// object. Names must not be kept: see [Held].
func (c *Cache[T]) addIdentityHandler(changed func(before, after heldObject)) (cache.ResourceEventHandlerRegistration, error) {
	return c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(heldObject{}, heldObjectOf(object)) },
		UpdateFunc: func(before, after any) { changed(heldObjectOf(before), heldObjectOf(after)) },
		DeleteFunc: func(object any) { changed(heldObjectOf(object), heldObject{}) },
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

// Len returns the number of objects. It may be behind what [Cache.All] returns for a moment.
func (c *Cache[T]) Len() int { return int(c.size.Load()) }

// IndexValues returns all values of an index.
func (c *Cache[T]) IndexValues(index string) []string {
	return c.informer.GetIndexer().ListIndexFuncValues(index)
}

// Get returns the object with key as the informer has it.
func (c *Cache[T]) Get(key types.NamespacedName) (T, bool) {
	object, _, _ := c.informer.GetIndexer().GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
	return held[T](object)
}

// heldVersion returns the version of the object with key as the informer has it.
func (c *Cache[T]) heldVersion(key types.NamespacedName) (version, bool) {
	object, ok, _ := c.informer.GetIndexer().GetByKey(cache.NewObjectName(key.Namespace, key.Name).String())
	if !ok {
		return version{}, false
	}
	held := heldObjectOf(object)
	return held.version, held.exists()
}

// keys returns the keys of all objects. It reads no object, which would keep all of them in memory at
// once.
func (c *Cache[T]) keys() iter.Seq[types.NamespacedName] {
	return func(yield func(types.NamespacedName) bool) {
		for _, key := range c.informer.GetIndexer().ListKeys() {
			namespace, name, err := cache.SplitMetaNamespaceKey(key)
			if err == nil && !yield(types.NamespacedName{Namespace: namespace, Name: name}) {
				return
			}
		}
	}
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

func typed[T Object](objects []any) []T {
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		if t, ok := held[T](object); ok {
			list = append(list, t)
		}
	}
	return list
}

// Find returns the object with a UID among those with this value of an index, as the informer has it.
func (c *Cache[T]) Find(index, value string, uid types.UID) (T, bool) {
	var none T
	objects, err := c.informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return none, false
	}
	for _, object := range objects {
		if h, ok := object.(identity); ok && h.UID() != uid {
			continue
		}
		if t, ok := held[T](object); ok && t.GetUID() == uid {
			return t, true
		}
	}
	return none, false
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
	c.mu.Lock() // before the list: a write that the informer catches up with in between would be in neither
	defer c.mu.Unlock()
	list := c.List(index, value)
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
	c.record(object, write[T]{object: c.own(object), expires: c.informers.cfg.Now().Add(WriteTimeout)})
}

// Wrote records an object that the API server returned when it was updated or patched here. It is
// ignored if the object is already gone.
func (c *Cache[T]) Wrote(object T) { c.record(object, write[T]{object: c.own(object)}) }

// Deleted records that an object was deleted here. It must be one that goes at once, without
// finalizers. It is not changed: it may be the one in the cache, which others read.
func (c *Cache[T]) Deleted(object T) {
	c.record(object, write[T]{object: object, deleted: true, expires: c.informers.cfg.Now().Add(WriteTimeout)})
}

// own brings an object that nobody else has into the form in which the cache holds it.
func (c *Cache[T]) own(object T) T {
	trim(object)
	if c.codec.Pack != nil {
		c.codec.Pack(object)
	}
	return object
}

func (c *Cache[T]) record(object T, w write[T]) {
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

// forget counts objects, and drops a write once the informer has caught up with it.
func (c *Cache[T]) forget(before, after heldObject) {
	seen := after
	switch {
	case !before.exists() && !after.exists():
		return
	case !before.exists():
		c.size.Add(1)
	case !after.exists():
		c.size.Add(-1)
		seen = before
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w, ok := c.written[seen.key]
	if ok && caughtUp(w, before, after) {
		delete(c.written, seen.key)
	}
}

// caughtUp reports whether the informer, which shows after in place of before, has seen w or what came
// after it.
func caughtUp[T Object](w write[T], before, after heldObject) bool {
	if !after.exists() {
		return w.object.GetUID() == before.version.uid
	}
	seen, ok := held[T](after.object)
	if !ok {
		return false
	}
	same := w.object.GetUID() == after.version.uid
	if w.deleted { // another object has its name, or a finalizer holds it
		return !same && Newer(seen, w.object) || same && seen.GetDeletionTimestamp() != nil
	}
	// An object that goes back was restored from a backup: the write is lost.
	return !Newer(w.object, seen) || before.exists() && before.version.uid == after.version.uid && wentBack(before, after)
}

// wentBack reports whether the informer shows an earlier version than before.
func wentBack(before, after heldObject) bool {
	order, err := resourceversion.CompareResourceVersion(before.version.resourceVersion, after.version.resourceVersion)
	return err == nil && order > 0
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
