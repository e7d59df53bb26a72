package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/client/informers/externalversions"
)

// InformersConfig configures [Informers].
type InformersConfig struct {
	// Client lists and watches; required.
	Client versioned.Interface
	// Now returns the time by which own writes expire; default time.Now.
	Now func() time.Time
	// Logger gets a line about each list or watch that fails; default slog.Default().
	Logger *slog.Logger
}

// Informers holds the caches that the controllers of one hub share. A resource is listed and
// watched only if its method was called before [Informers.Run]. It is safe for concurrent use.
type Informers struct {
	cfg     InformersConfig
	factory externalversions.SharedInformerFactory

	mu       sync.Mutex
	caches   map[schema.GroupResource]any   // guarded by mu
	failures map[schema.GroupResource]error // guarded by mu: why the last list or watch failed
}

// NewInformers returns informers for all namespaces. It does no I/O.
func NewInformers(cfg InformersConfig) *Informers {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Informers{
		cfg:      cfg,
		factory:  externalversions.NewSharedInformerFactoryWithOptions(cfg.Client, 0, externalversions.WithTransform(trim)),
		caches:   make(map[schema.GroupResource]any),
		failures: make(map[schema.GroupResource]error),
	}
}

// ManifestWorks returns the cache of ManifestWorks.
func (i *Informers) ManifestWorks() *Cache[*workv1.ManifestWork] {
	return cacheFor[*workv1.ManifestWork](i, workv1.Resource("manifestworks"), i.factory.Work().V1().ManifestWorks())
}

// ManifestWorkReplicaSets returns the cache of ManifestWorkReplicaSets.
func (i *Informers) ManifestWorkReplicaSets() *Cache[*workv1alpha1.ManifestWorkReplicaSet] {
	return cacheFor[*workv1alpha1.ManifestWorkReplicaSet](i, workv1alpha1.Resource("manifestworkreplicasets"),
		i.factory.Work().V1alpha1().ManifestWorkReplicaSets())
}

// ManagedClusters returns the cache of ManagedClusters.
func (i *Informers) ManagedClusters() *Cache[*clusterv1.ManagedCluster] {
	return cacheFor[*clusterv1.ManagedCluster](i, clusterv1.Resource("managedclusters"), i.factory.Cluster().V1().ManagedClusters())
}

// Placements returns the cache of Placements.
func (i *Informers) Placements() *Cache[*clusterv1beta1.Placement] {
	return cacheFor[*clusterv1beta1.Placement](i, clusterv1beta1.Resource("placements"), i.factory.Cluster().V1beta1().Placements())
}

// PlacementDecisions returns the cache of PlacementDecisions.
func (i *Informers) PlacementDecisions() *Cache[*clusterv1beta1.PlacementDecision] {
	return cacheFor[*clusterv1beta1.PlacementDecision](i, clusterv1beta1.Resource("placementdecisions"),
		i.factory.Cluster().V1beta1().PlacementDecisions())
}

// cacheFor returns the one cache of a resource and creates it at the first call.
func cacheFor[T Object](i *Informers, resource schema.GroupResource, informer interface {
	Informer() cache.SharedIndexInformer
}) *Cache[T] {
	i.mu.Lock()
	defer i.mu.Unlock()
	if existing, ok := i.caches[resource].(*Cache[T]); ok {
		return existing
	}
	c := newCache[T](i, resource, informer.Informer())
	i.caches[resource] = c
	return c
}

// Run keeps the caches up to date until ctx ends; it returns nil then, when all informers have
// stopped. An API server that cannot be reached, or that does not serve a resource, is tried again
// forever. It must be called once.
func (i *Informers) Run(ctx context.Context) error {
	i.factory.StartWithContext(ctx)
	<-ctx.Done()
	i.factory.Shutdown()
	return nil
}

// observeFailure remembers why a list or watch failed, with what to do about it.
func (i *Informers) observeFailure(resource schema.GroupResource, err error) {
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err):
		i.cfg.Logger.Debug("watch expired, restarting", "resource", resource, "reason", err)
		return
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the hub's API server does not serve %s: apply deploy/crds: %w", resource, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the hub may not read %s: grant get, list and watch on %s, and the other rights in docs/hub.md: %w",
			resource.Resource, resource, err)
	default:
		err = fmt.Errorf("list and watch %s: %w", resource, err)
	}
	i.mu.Lock()
	i.failures[resource] = err
	i.mu.Unlock()
	i.cfg.Logger.Warn("list or watch failed, retrying", "resource", resource, "error", err)
}

// failure returns why a cache that has not synced is not filled.
func (i *Informers) failure(resource schema.GroupResource) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.failures[resource]; err != nil {
		return err
	}
	return errors.New(resource.Resource + " have not been read yet")
}

// trim drops the parts of an object that no controller reads and that are the longest of many.
// Placements and their decisions are written back whole, so their annotations stay.
func trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *workv1.ManifestWork:
		delete(o.Annotations, corev1.LastAppliedConfigAnnotation)
	case *clusterv1.ManagedCluster:
		delete(o.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}
