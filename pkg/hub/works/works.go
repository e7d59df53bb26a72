// Package works is the hub's view of the ManifestWorks of a Kubernetes API: an
// informer's cache, with lookups by UID and by cluster that cost nothing.
//
//	cache, err := works.New(works.Config{Client: client, Logger: logger})
//	go cache.Run(ctx)
//	if cache.WaitForSync(ctx) { ... cache.Get(uid) ... }
//
// A work is shown ([Visible]) to the rest of the hub, and so to its cluster,
// only once it carries the hub's finalizer: nothing then reaches a cluster that
// could be deleted behind the hub's back.
//
// The cache follows the API server by some milliseconds. Who writes to a work
// tells the cache ([Cache.Wrote]), so that [Cache.Latest] never is older than
// what was written here.
package works

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	informers "github.com/workwire/workwire/pkg/client/informers/externalversions/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Names of the indexes.
const (
	byUID        = "uid"
	byReplicaSet = "replicaset"
)

// Config says what a [Cache] holds.
type Config struct {
	// Client of the hub's API; required.
	Client versioned.Interface
	// Logger is required.
	Logger *slog.Logger
	// Registerer gets the metric workwire_hub_works; nil for none.
	Registerer prometheus.Registerer
}

// Cache holds all works of all namespaces. Its methods may be called from any
// goroutine. What it gives is shared memory, never to be written to.
type Cache struct {
	informer cache.SharedIndexInformer
	log      *slog.Logger

	mu      sync.Mutex
	written map[types.UID]*workv1.ManifestWork // guarded by mu: writes that the informer has not seen yet
	failure error                              // guarded by mu: why the last list or watch failed; nil once synced
}

// New makes a cache. It does no I/O. It fails when the metric is registered
// already.
func New(cfg Config) (*Cache, error) {
	c := &Cache{log: cfg.Logger, written: make(map[types.UID]*workv1.ManifestWork)}
	c.informer = informers.NewManifestWorkInformer(cfg.Client, "", 0, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		byUID: func(object any) ([]string, error) {
			if work, ok := object.(*workv1.ManifestWork); ok {
				return []string{string(work.UID)}, nil
			}
			return nil, nil
		},
		byReplicaSet: func(object any) ([]string, error) {
			if work, ok := object.(*workv1.ManifestWork); ok {
				if set, ok := work.Labels[workv1.ReplicaSetLabelKey]; ok {
					return []string{set}, nil
				}
			}
			return nil, nil
		},
	})
	_, err := c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(_, object any) { c.seen(object, false) },
		DeleteFunc: func(object any) { c.seen(object, true) },
	})
	err = errors.Join(err, c.informer.SetTransform(slim), c.informer.SetWatchErrorHandlerWithContext(c.failed))
	if cfg.Registerer != nil {
		err = errors.Join(err, cfg.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "workwire", Subsystem: "hub", Name: "works", Help: "ManifestWorks on the hub.",
		}, func() float64 { return float64(len(c.informer.GetIndexer().ListKeys())) })))
	}
	if err != nil {
		return nil, fmt.Errorf("cache of ManifestWorks: %w", err)
	}
	return c, nil
}

// slim drops from a work what the hub has no use for and what is the longest
// part of many.
func slim(object any) (any, error) {
	if work, ok := object.(*workv1.ManifestWork); ok {
		work.ManagedFields = nil
		delete(work.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}

// Run keeps the cache up to date until ctx ends. A server that can not be
// reached, or that has no ManifestWorks yet, is tried again for ever. It must be
// called once.
func (c *Cache) Run(ctx context.Context) { c.informer.RunWithContext(ctx) }

// WaitForSync waits until the cache holds all works, and reports false when ctx
// ended before.
func (c *Cache) WaitForSync(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.informer.HasSyncedChecker().Done():
		return true
	}
}

// Ready tells why the cache does not hold all works yet; nil once it does.
func (c *Cache) Ready(context.Context) error {
	if c.informer.HasSynced() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	return errors.New("the ManifestWorks have not been read yet")
}

// failed notes why a list or watch failed, and says what to do.
func (c *Cache) failed(_ context.Context, _ *cache.Reflector, err error) {
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err):
		c.log.Debug("the watch of ManifestWorks starts again", "reason", err)
		return
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the hub's API serves no ManifestWorks: apply deploy/crds to it: %w", err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the hub may not read ManifestWorks: grant get, list and watch on manifestworks.%s, and patch on "+
			"manifestworks and manifestworks/status: %w", workv1.GroupName, err)
	default:
		err = fmt.Errorf("list and watch ManifestWorks: %w", err)
	}
	c.mu.Lock()
	c.failure = err
	c.mu.Unlock()
	c.log.Warn("the ManifestWorks can not be read; trying again", "error", err)
}

// Handle calls handler for every change from now on, beginning with an addition
// for each work there is, until the function it gives is called; handler may
// still be in a call then. Calls come one at a time.
func (c *Cache) Handle(handler cache.ResourceEventHandler) (stop func(), err error) {
	registration, err := c.informer.AddEventHandler(handler)
	if err != nil {
		return nil, fmt.Errorf("watch ManifestWorks: %w", err)
	}
	return func() { _ = c.informer.RemoveEventHandler(registration) }, nil
}

// Named gives the work by namespace and name, visible or not.
func (c *Cache) Named(name types.NamespacedName) (*workv1.ManifestWork, bool) {
	object, ok, err := c.informer.GetIndexer().GetByKey(name.String())
	if err != nil || !ok {
		return nil, false
	}
	work, ok := object.(*workv1.ManifestWork)
	return work, ok
}

// Get gives the work with uid, visible or not.
func (c *Cache) Get(uid types.UID) (*workv1.ManifestWork, bool) {
	objects, err := c.informer.GetIndexer().ByIndex(byUID, string(uid))
	if err != nil || len(objects) == 0 {
		return nil, false
	}
	work, ok := objects[0].(*workv1.ManifestWork)
	return work, ok
}

// OfCluster gives the works of cluster, visible or not. It costs one pass over
// them.
func (c *Cache) OfCluster(cluster wire.ClusterName) iter.Seq[*workv1.ManifestWork] {
	return c.indexed(cache.NamespaceIndex, string(cluster))
}

// OfReplicaSet gives the works whose label [workv1.ReplicaSetLabelKey] has this
// value, visible or not. It costs one pass over them.
func (c *Cache) OfReplicaSet(label string) iter.Seq[*workv1.ManifestWork] {
	return c.indexed(byReplicaSet, label)
}

func (c *Cache) indexed(index, value string) iter.Seq[*workv1.ManifestWork] {
	return func(yield func(*workv1.ManifestWork) bool) {
		objects, err := c.informer.GetIndexer().ByIndex(index, value)
		if err != nil {
			return // no such index: New makes it
		}
		for _, object := range objects {
			if work, ok := object.(*workv1.ManifestWork); ok && !yield(work) {
				return
			}
		}
	}
}

// Clusters gives each cluster that has works. It costs one pass over the
// clusters.
func (c *Cache) Clusters() iter.Seq[wire.ClusterName] {
	return func(yield func(wire.ClusterName) bool) {
		for _, namespace := range c.informer.GetIndexer().ListIndexFuncValues(cache.NamespaceIndex) {
			if !yield(wire.ClusterName(namespace)) {
				return
			}
		}
	}
}

// Latest is as Get, but knows of writes that [Cache.Wrote] was told of.
func (c *Cache) Latest(uid types.UID) (*workv1.ManifestWork, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if work, ok := c.written[uid]; ok {
		return work, true
	}
	return c.Get(uid)
}

// Wrote tells of work as the API server returned it after a write.
func (c *Cache) Wrote(work *workv1.ManifestWork) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cached, ok := c.Get(work.UID); !ok || !newer(work, cached) {
		return
	}
	if before, ok := c.written[work.UID]; ok && !newer(work, before) {
		return
	}
	_, _ = slim(work)
	c.written[work.UID] = work
}

// seen forgets a write once the informer has caught up with it.
func (c *Cache) seen(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	work, ok := object.(*workv1.ManifestWork)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if written, ok := c.written[work.UID]; ok && (gone || !newer(written, work)) {
		delete(c.written, work.UID)
	}
}

// newer reports whether a is a later state of a work than b.
func newer(a, b *workv1.ManifestWork) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
