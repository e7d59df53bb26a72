package observe

import (
	"fmt"
	"iter"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/workwire/workwire/pkg/agent/compress"
	"github.com/workwire/workwire/pkg/agent/object"
)

// View is what is known of the objects of one resource type. A reflector feeds
// it; Learn and Forget put in what writes returned before the watch shows it.
// Resource versions keep the two in order: neither can put back what the other
// has overtaken. It is safe for concurrent use. Objects are held packed: each that
// is given out is the caller's own.
type View[T metav1.Object] struct {
	blank   func() T
	changed func(name types.NamespacedName, version string)
	codec   compress.Codec

	mu     sync.Mutex
	items  map[types.NamespacedName]snapshot
	latest string // the newest resource version that the watch has passed
	synced chan struct{}
	isSync bool
}

// snapshot is an object, and its resource version.
type snapshot struct {
	version string
	data    compress.Data
}

var (
	_ cache.ReflectorStore         = (*View[metav1.Object])(nil)
	_ cache.ReflectorBookmarkStore = (*View[metav1.Object])(nil)
	_ cache.TransformingStore      = (*View[metav1.Object])(nil)
)

// NewView returns an empty view. blank gives an empty object. changed is called,
// without a lock held, for each object that the watch finds to differ from what is
// known, with the resource version at which it does; it must not block.
func NewView[T metav1.Object](blank func() T, changed func(name types.NamespacedName, version string)) *View[T] {
	return &View[T]{
		blank:   blank,
		changed: changed,
		items:   map[types.NamespacedName]snapshot{},
		synced:  make(chan struct{}),
	}
}

// Synced is closed once the view has been filled from a list.
func (v *View[T]) Synced() <-chan struct{} { return v.synced }

// Get returns the object, and whether it exists. Before the view is synced, an
// object that is not found may exist all the same.
func (v *View[T]) Get(name types.NamespacedName) (T, bool) {
	v.mu.Lock()
	held, ok := v.items[name]
	v.mu.Unlock()
	if !ok {
		var none T
		return none, false
	}
	return v.unpack(held), true
}

// All yields the objects known when it is called.
func (v *View[T]) All() iter.Seq[T] {
	v.mu.Lock()
	items := maps.Clone(v.items)
	v.mu.Unlock()
	return func(yield func(T) bool) {
		for _, held := range items {
			if !yield(v.unpack(held)) {
				return
			}
		}
	}
}

// Learn puts in an object that the API server has just returned, without its
// managedFields, which it takes off. One that the watch has overtaken already is
// ignored.
func (v *View[T]) Learn(answer T) {
	answer.SetManagedFields(nil)
	learnt, err := v.pack(answer)
	if err != nil {
		return // the watch will deliver it, and say so
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	name := nameOf(answer)
	known, exists := v.items[name]
	if exists && !object.Newer(learnt.version, known.version) {
		return
	}
	if v.latest != "" && !object.Newer(learnt.version, v.latest) {
		return
	}
	v.items[name] = learnt
}

// Forget drops an object that the API server has just reported gone. uid guards
// against dropping its successor; empty matches any.
func (v *View[T]) Forget(name types.NamespacedName, uid types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known, exists := v.items[name]; exists && (uid == "" || v.unpack(known).GetUID() == uid) {
		delete(v.items, name)
	}
}

// Add implements [cache.ReflectorStore].
func (v *View[T]) Add(object any) error { return v.put(object) }

// Update implements [cache.ReflectorStore].
func (v *View[T]) Update(object any) error { return v.put(object) }

func (v *View[T]) put(object any) error {
	typed, err := v.typed(object)
	if err != nil {
		return err
	}
	name, version := nameOf(typed), typed.GetResourceVersion()
	if v.passed(name, version) {
		return nil
	}
	seen, err := v.pack(typed)
	if err != nil {
		return err
	}
	v.mu.Lock()
	// Only now: as soon as the watch has passed a version, Learn drops it.
	v.pass(version)
	fresh := v.isNews(name, version)
	if fresh {
		v.items[name] = seen
	}
	v.mu.Unlock()
	if fresh {
		v.changed(name, version)
	}
	return nil
}

// passed lets the watch pass version if that is no news of the object: mostly it
// is what a write has returned, and need not be packed again.
func (v *View[T]) passed(name types.NamespacedName, version string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.isNews(name, version) {
		return false
	}
	v.pass(version)
	return true
}

// isNews says whether version is later than what is known of the object. The
// caller holds mu.
func (v *View[T]) isNews(name types.NamespacedName, version string) bool {
	known, exists := v.items[name]
	return !exists || object.Newer(version, known.version)
}

// Delete implements [cache.ReflectorStore]. last is the last state, with the
// resource version of the deletion.
func (v *View[T]) Delete(last any) error {
	typed, err := v.typed(last)
	if err != nil {
		return err
	}
	name := nameOf(typed)
	v.mu.Lock()
	v.pass(typed.GetResourceVersion())
	known, exists := v.items[name]
	gone := exists && !object.Newer(known.version, typed.GetResourceVersion())
	if gone {
		delete(v.items, name)
	}
	v.mu.Unlock()
	// Whoever waits for the object to go may have been told by Forget already.
	if gone || !exists {
		v.changed(name, typed.GetResourceVersion())
	}
	return nil
}

// Replace implements [cache.ReflectorStore]: list is all there was at
// resourceVersion. What is known to be newer stays.
func (v *View[T]) Replace(list []any, resourceVersion string) error {
	items := make(map[types.NamespacedName]snapshot, len(list))
	for _, object := range list {
		typed, err := v.typed(object)
		if err != nil {
			return err
		}
		if items[nameOf(typed)], err = v.pack(typed); err != nil {
			return err
		}
	}
	v.mu.Lock()
	differs := map[types.NamespacedName]string{}
	for name, known := range v.items {
		listed, ok := items[name]
		switch {
		case ok && object.Newer(listed.version, known.version):
			differs[name] = listed.version
		case ok:
			items[name] = known
		case object.Newer(known.version, resourceVersion):
			items[name] = known
		default:
			differs[name] = resourceVersion // of the list that does not have it
		}
	}
	for name, listed := range items {
		if _, ok := v.items[name]; !ok {
			differs[name] = listed.version
		}
	}
	v.items = items
	v.pass(resourceVersion)
	if !v.isSync {
		v.isSync = true
		close(v.synced)
	}
	v.mu.Unlock()
	for name, version := range differs {
		v.changed(name, version)
	}
	return nil
}

// Bookmark implements [cache.ReflectorBookmarkStore].
func (v *View[T]) Bookmark(resourceVersion string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pass(resourceVersion)
	return nil
}

// Resync implements [cache.ReflectorStore]: there is nothing to do.
func (v *View[T]) Resync() error { return nil }

// Transformer implements [cache.TransformingStore]: managedFields are dropped,
// which are half of a small object.
func (v *View[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if typed, ok := object.(T); ok {
			typed.SetManagedFields(nil)
		}
		return object, nil
	}
}

// pass notes that the watch has come to resourceVersion. The caller holds mu.
func (v *View[T]) pass(resourceVersion string) {
	if v.latest == "" || object.Newer(resourceVersion, v.latest) {
		v.latest = resourceVersion
	}
}

func (v *View[T]) pack(object T) (snapshot, error) {
	data, err := v.codec.Encode(contentOf(object))
	if err != nil {
		return snapshot{}, fmt.Errorf("hold %s: %w", nameOf(object), err)
	}
	return snapshot{version: object.GetResourceVersion(), data: data}, nil
}

func (v *View[T]) unpack(held snapshot) T {
	object := v.blank()
	v.codec.Decode(held.data, contentOf(object))
	return object
}

// contentOf points to what stands for an object.
func contentOf(object metav1.Object) any {
	if free, ok := object.(*unstructured.Unstructured); ok {
		return &free.Object
	}
	return object
}

func (v *View[T]) typed(object any) (T, error) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	typed, ok := object.(T)
	if !ok {
		var want T
		return want, fmt.Errorf("watch delivered a %T instead of a %T", object, want)
	}
	return typed, nil
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}
