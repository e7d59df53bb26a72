package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/runtime/listwatch"
)

// InformersConfig configures [Informers].
type InformersConfig struct {
	// Client lists and watches; required.
	Client versioned.Interface
	// Metadata lists metadata for [Informers.CatchUp], on another connection than Client; default:
	// Client lists whole objects.
	Metadata metadata.Interface
	// Reconnect closes the connections of Client, so that its requests fail and the next ones open
	// new connections; default nothing.
	Reconnect func()
	// Now returns the time by which own writes expire; default time.Now.
	Now func() time.Time
	// Logger gets a line about each list or watch that fails; default slog.Default().
	Logger *slog.Logger
}

// Informers holds the caches that the controllers of one hub share. A resource is listed and
// watched only if its method was called before [Informers.Run]. It is safe for concurrent use.
type Informers struct {
	cfg     InformersConfig
	metrics *informerMetrics

	mu       sync.Mutex
	caches   map[schema.GroupResource]anyCache // guarded by mu
	failures map[schema.GroupResource]error    // guarded by mu: why the last list or watch failed; none if it did not
}

// anyCache is a cache of any resource.
type anyCache interface {
	run(ctx context.Context)
	current() error
	catchUp(ctx context.Context) error
}

// NewInformers returns informers for all namespaces. It does no I/O.
func NewInformers(cfg InformersConfig) *Informers {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	i := &Informers{cfg: cfg, caches: make(map[schema.GroupResource]anyCache), failures: make(map[schema.GroupResource]error)}
	i.metrics = newInformerMetrics(func() bool { return i.Ready(context.Background()) == nil })
	return i
}

// Metrics returns the metrics workwire_hub_caches_synced, workwire_hub_caches_read_anew_total and
// workwire_hub_catch_up_seconds.
func (i *Informers) Metrics() []prometheus.Collector {
	return []prometheus.Collector{i.metrics.synced, i.metrics.readAnew, i.metrics.catchUp}
}

// ManifestWorkReplicaSets returns the cache of ManifestWorkReplicaSets.
func (i *Informers) ManifestWorkReplicaSets() *Cache[*workv1alpha1.ManifestWorkReplicaSet] {
	return plainCache(i, workv1alpha1.SchemeGroupVersion.WithResource("manifestworkreplicasets"), &workv1alpha1.ManifestWorkReplicaSet{},
		i.cfg.Client.WorkV1alpha1().ManifestWorkReplicaSets(""))
}

// ManagedClusters returns the cache of ManagedClusters.
func (i *Informers) ManagedClusters() *Cache[*clusterv1.ManagedCluster] {
	return plainCache(i, clusterv1.SchemeGroupVersion.WithResource("managedclusters"), &clusterv1.ManagedCluster{},
		i.cfg.Client.ClusterV1().ManagedClusters())
}

// ManagedClusterSets returns the cache of ManagedClusterSets.
func (i *Informers) ManagedClusterSets() *Cache[*clusterv1beta2.ManagedClusterSet] {
	return plainCache(i, clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersets"), &clusterv1beta2.ManagedClusterSet{},
		i.cfg.Client.ClusterV1beta2().ManagedClusterSets())
}

// ManagedClusterSetBindings returns the cache of ManagedClusterSetBindings.
func (i *Informers) ManagedClusterSetBindings() *Cache[*clusterv1beta2.ManagedClusterSetBinding] {
	return plainCache(i, clusterv1beta2.SchemeGroupVersion.WithResource("managedclustersetbindings"), &clusterv1beta2.ManagedClusterSetBinding{},
		i.cfg.Client.ClusterV1beta2().ManagedClusterSetBindings(""))
}

// Placements returns the cache of Placements.
func (i *Informers) Placements() *Cache[*clusterv1beta1.Placement] {
	return plainCache(i, clusterv1beta1.SchemeGroupVersion.WithResource("placements"), &clusterv1beta1.Placement{},
		i.cfg.Client.ClusterV1beta1().Placements(""))
}

// PlacementDecisions returns the cache of PlacementDecisions.
func (i *Informers) PlacementDecisions() *Cache[*clusterv1beta1.PlacementDecision] {
	return plainCache(i, clusterv1beta1.SchemeGroupVersion.WithResource("placementdecisions"), &clusterv1beta1.PlacementDecision{},
		i.cfg.Client.ClusterV1beta1().PlacementDecisions(""))
}

// AddOnPlacementScores returns the cache of AddOnPlacementScores.
func (i *Informers) AddOnPlacementScores() *Cache[*clusterv1alpha1.AddOnPlacementScore] {
	return plainCache(i, clusterv1alpha1.SchemeGroupVersion.WithResource("addonplacementscores"), &clusterv1alpha1.AddOnPlacementScore{},
		i.cfg.Client.ClusterV1alpha1().AddOnPlacementScores(""))
}

// WorkOverrides returns the cache of WorkOverrides.
func (i *Informers) WorkOverrides() *Cache[*workwirev1alpha1.WorkOverride] {
	return plainCache(i, workwirev1alpha1.GroupVersion.WithResource("workoverrides"), &workwirev1alpha1.WorkOverride{},
		i.cfg.Client.WorkwireV1alpha1().WorkOverrides(""))
}

// RolloutPlans returns the cache of RolloutPlans.
func (i *Informers) RolloutPlans() *Cache[*workwirev1alpha1.RolloutPlan] {
	return plainCache(i, workwirev1alpha1.GroupVersion.WithResource("rolloutplans"), &workwirev1alpha1.RolloutPlan{},
		i.cfg.Client.WorkwireV1alpha1().RolloutPlans(""))
}

// plainCache is [CacheOf] for objects that are held as they are.
func plainCache[T Object, L runtime.Object](i *Informers, version schema.GroupVersionResource, example T, client listwatch.Client[L]) *Cache[T] {
	return CacheOf(i, version, example, Codec[T]{}, func(versioned.Interface) listwatch.Client[L] { return client })
}

// CacheOf returns the one cache of a resource and creates it at the first call, with objects like example
// that codec holds, and with what lists and watches them in all namespaces.
func CacheOf[T Object, L runtime.Object](
	i *Informers, version schema.GroupVersionResource, example T, codec Codec[T], client func(versioned.Interface) listwatch.Client[L],
) *Cache[T] {
	i.mu.Lock()
	defer i.mu.Unlock()
	resource := version.GroupResource()
	if existing, ok := i.caches[resource].(*Cache[T]); ok {
		return existing
	}
	c := newCache(i, version, example, codec, &listWatch{
		informers: i, resource: resource, woken: make(chan struct{}), api: listwatch.Of(client(i.cfg.Client), nil, nil),
	})
	i.caches[resource] = c
	return c
}

// Run keeps the caches up to date until ctx ends; it returns nil then, when all informers have
// stopped, and never an error: an API server that cannot be reached, or that does not serve a resource, is
// tried again forever. It must be called once.
func (i *Informers) Run(ctx context.Context) error {
	var group sync.WaitGroup
	i.mu.Lock()
	for _, c := range i.caches {
		group.Go(func() { c.run(ctx) })
	}
	i.mu.Unlock()
	group.Wait()
	return nil
}

// Ready returns why the caches do not hold all objects, or are not kept up to date; nil if they
// are. A connection that was cut is noticed within a minute.
func (i *Informers) Ready(context.Context) error {
	i.mu.Lock()
	caches := slices.Collect(maps.Values(i.caches))
	i.mu.Unlock()
	var errs []error
	for _, c := range caches {
		errs = append(errs, c.current())
	}
	return errors.Join(errs...)
}

// restarted notes that a cache is read again, on new connections.
func (i *Informers) restarted(resource schema.GroupResource) {
	i.metrics.readAnew.WithLabelValues(resource.Resource).Inc()
	if i.cfg.Reconnect != nil {
		i.cfg.Reconnect()
	}
}

// observeSuccess notes that the API server answers requests for a resource.
func (i *Informers) observeSuccess(resource schema.GroupResource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.failures, resource)
}

// lastFailure returns why the last list or watch of a resource failed; nil if it did not.
func (i *Informers) lastFailure(resource schema.GroupResource) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failures[resource]
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
	if err := i.lastFailure(resource); err != nil {
		return err
	}
	return errors.New(resource.Resource + " have not been read yet")
}

// trim drops the parts of an object that no controller reads and that are the longest of many.
// Placements and their decisions are written back whole, so their annotations stay.
func trim(object any) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok {
		delete(cluster.Annotations, corev1.LastAppliedConfigAnnotation)
	}
}
