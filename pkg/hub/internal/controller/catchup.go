package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// pageSize is how many objects are listed by one request.
const pageSize = 500

// Times of [Informers.CatchUp].
const (
	// watchPatience is how long watch events may lag behind a list before the objects are read
	// again.
	watchPatience = 2 * time.Second
	// readPatience is how long that may take before it is done again, the first time; then twice as long,
	// up to maxReadPatience, so that every read ends at some time.
	readPatience    = 15 * time.Second
	maxReadPatience = 30 * time.Minute
	// listPause is the pause after a list that failed, or does not fit the cache; then twice as long, up to
	// maxListPause.
	listPause    = 500 * time.Millisecond
	maxListPause = 8 * time.Second
)

// CatchUp waits until every cache holds all that was written before CatchUp was called, however
// old the caches were. It reports false when ctx ended before.
//
// It costs one list of metadata per resource, in pages, which is compared with the cache; what the cache
// lacks is awaited. If watch events do not deliver it within 2 seconds, as when the connection was
// cut, or if the two contradict each other, the connections are closed and the resource is read
// again. It is retried until it succeeds.
func (i *Informers) CatchUp(ctx context.Context) bool {
	started := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	i.mu.Lock()
	for _, c := range i.caches {
		group.Go(func() error { return c.catchUp(ctx) })
	}
	i.mu.Unlock()
	if group.Wait() != nil {
		return false
	}
	took := time.Since(started)
	i.metrics.catchUp.Set(took.Seconds())
	i.cfg.Logger.Info("caches are current", "after", took.Round(time.Millisecond))
	return true
}

// CatchUp waits until the cache holds all that was written before CatchUp was called. It reports false
// when ctx ended before. It costs what [Informers.CatchUp] does for one resource.
func (c *Cache[T]) CatchUp(ctx context.Context) bool { return c.catchUp(ctx) == nil }

// catchUp is [Informers.CatchUp] for one cache. It returns an error when ctx ended before.
func (c *Cache[T]) catchUp(ctx context.Context) error {
	c.source.wake()
	if !c.WaitForSync(ctx) {
		return context.Cause(ctx)
	}
	t := &tracker[T]{cache: c, deleted: make(map[types.UID]bool)}
	registration, err := c.addIdentityHandler(t.changed)
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.resource, err)
	}
	defer c.RemoveEventHandler(registration)
	var restarted time.Time
	var heldThen string // the resource version of the cache at restarted
	patience, rest, whole := watchPatience, listPause, false
	for {
		done, err := c.compare(ctx, t, whole)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil {
			if awaitFor(ctx, done, patience) {
				return nil
			}
			err = errors.New("watch events are missing")
		} else {
			readSince := !restarted.IsZero() && c.informer.LastSyncResourceVersion() != heldThen
			whole = whole || listsWhole(err, readSince)
			pause(ctx, rest)
			rest = min(2*rest, maxListPause)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		c.informers.cfg.Logger.Warn("cache is not known to be current, reading it anew", "resource", c.resource, "error", err)
		if restarted.IsZero() || time.Since(restarted) > patience {
			patience = nextPatience(patience)
			restarted, heldThen = time.Now(), c.informer.LastSyncResourceVersion()
			c.informers.restarted(c.resource)
			c.source.readAnew()
		}
	}
}

// nextPatience returns how long the next read may take after one that was given this long; that of the
// first is watchPatience.
func nextPatience(last time.Duration) time.Duration {
	return min(max(2*last, readPatience), maxReadPatience)
}

// listsWhole reports whether whole objects must be listed after err, which a list of metadata brought: an API
// server cannot list metadata, or its list does not fit a cache that was read since it last did not.
func listsWhole(err error, readSince bool) bool {
	return apierrors.IsNotAcceptable(err) || apierrors.IsUnsupportedMediaType(err) || errors.Is(err, errIncomplete) ||
		errors.Is(err, errWrongHistory) && readSince
}

// compare lists the resource and has t wait for what the cache lacks; whole lists whole objects.
// done is closed once the cache lacks nothing.
func (c *Cache[T]) compare(ctx context.Context, t *tracker[T], whole bool) (done <-chan struct{}, err error) {
	before := c.informer.LastSyncResourceVersion()
	l, err := c.listing(ctx, whole)
	if err != nil {
		return nil, err
	}
	if err := l.follows(before); err != nil {
		return nil, err
	}
	return t.expect(l)
}

// listing lists the versions of all objects, as they are now: of metadata, or of whole objects. It keeps one
// page at a time, since all pages would take more memory than the works that a hub holds.
func (c *Cache[T]) listing(ctx context.Context, whole bool) (*listing, error) {
	list := c.source.api.ListWithContextFunc
	if metadata := c.informers.cfg.Metadata; metadata != nil && !whole {
		list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return metadata.Resource(c.version).List(ctx, options)
		}
	}
	l := &listing{objects: make(map[types.NamespacedName]version)}
	for options := (metav1.ListOptions{Limit: pageSize}); ; {
		page, err := list(ctx, options)
		if err == nil {
			options.Continue, err = l.add(page)
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", c.resource, err)
		}
		if options.Continue == "" {
			return l, nil
		}
	}
}

// add adds the objects of a page, and returns where the next one begins; empty: it was the last.
func (l *listing) add(page runtime.Object) (next string, err error) {
	list, err := meta.ListAccessor(page)
	if err != nil {
		return "", err
	}
	if l.resourceVersion = list.GetResourceVersion(); l.resourceVersion == "" {
		return "", errIncomplete
	}
	return list.GetContinue(), meta.EachListItem(page, func(item runtime.Object) error {
		object, err := meta.Accessor(item)
		if err != nil {
			return err
		}
		v := versionOf(object)
		if object.GetName() == "" || v.resourceVersion == "" {
			return errIncomplete
		}
		l.objects[KeyOf(object)] = v
		return nil
	})
}

// errIncomplete says that an API server has left something out of a list.
var errIncomplete = errors.New("the answer is incomplete")

// tracker follows a cache until it holds what was listed.
type tracker[T Object] struct {
	cache *Cache[T]

	mu      sync.Mutex
	listing *listing                      // guarded by mu; nil before the first
	pending map[types.NamespacedName]bool // guarded by mu: what the cache lacks
	done    chan struct{}                 // guarded by mu: closed when pending becomes empty
	deleted map[types.UID]bool            // guarded by mu: objects that were seen to be deleted
}

// expect compares the cache with l. It costs one look at each object.
func (t *tracker[T]) expect(l *listing) (done <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.listing, t.pending, t.done = l, make(map[types.NamespacedName]bool), make(chan struct{})
	check := func(key types.NamespacedName) error {
		lacks, err := t.lacks(key)
		if lacks {
			t.pending[key] = true
		}
		return err
	}
	for key := range l.objects {
		if err := check(key); err != nil {
			t.listing = nil
			return nil, err
		}
	}
	for key := range t.cache.keys() {
		if err := check(key); err != nil {
			t.listing = nil
			return nil, err
		}
	}
	if len(t.pending) == 0 {
		close(t.done)
	}
	return t.done, nil
}

// lacks reports whether the cache lacks a change of key that was made before the list. mu is held.
func (t *tracker[T]) lacks(key types.NamespacedName) (bool, error) {
	if held, ok := t.cache.heldVersion(key); ok {
		return t.listing.behind(key, &held)
	}
	if t.deleted[t.listing.objects[key].uid] {
		return false, nil // after the list
	}
	return t.listing.behind(key, nil)
}

// changed handles an event of the cache.
func (t *tracker[T]) changed(before, after heldObject) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := after.key
	if !after.exists() {
		key = before.key
	}
	if before.exists() && (!after.exists() || after.version.uid != before.version.uid) {
		t.deleted[before.version.uid] = true
	}
	if t.listing == nil || !t.pending[key] {
		return
	}
	// A contradiction stays pending: the cache is read again then.
	if lacks, err := t.lacks(key); lacks || err != nil {
		return
	}
	if delete(t.pending, key); len(t.pending) == 0 {
		close(t.done)
	}
}

// awaitFor waits until done is closed, and reports false when ctx or the time ended before.
func awaitFor(ctx context.Context, done <-chan struct{}, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return waitFor(ctx, done)
}

// pause waits; it returns early when ctx ends.
func pause(ctx context.Context, d time.Duration) { awaitFor(ctx, nil, d) }
