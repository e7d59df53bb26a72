// Package placement serves Placement: it chooses clusters for each one, and
// writes them down in PlacementDecisions.
//
//	controller, err := placement.New(placement.Config{Client: client, Logger: logger, ...})
//	...
//	err = controller.Run(ctx)
//
// The choice is a pure function (schedule) of the Placement, the clusters, what
// was chosen before, and the time; how to write it down is another
// (planDecisions). Both move as little as they can: what stays chosen stays where
// it is written, so that a cluster that comes or goes costs one write, whatever
// the number of clusters, and nothing is written that is written already.
//
// Nothing is kept but what is on the API server. A change of a cluster leads to
// another look at those placements only in whose eyes it has changed.
//
// One controller must serve Placement on an API server: do not run this one where
// another does. What others have written for a Placement, under its label and
// owner, is taken over as it is.
package placement

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	informersv1 "github.com/workwire/workwire/pkg/client/informers/externalversions/cluster/v1"
	informersv1beta1 "github.com/workwire/workwire/pkg/client/informers/externalversions/cluster/v1beta1"
)

// workers is how many placements are looked at at a time.
const workers = 4

// Pauses: between looks at one placement, and between the tries of one that fails.
const (
	pause         = 100 * time.Millisecond
	retryAfter    = 5 * time.Millisecond
	retryAfterMax = 30 * time.Second
)

// Config is what a [Controller] is made of. All fields but those said to be
// optional are required.
type Config struct {
	// Client reads placements and clusters, and writes decisions.
	Client versioned.Interface
	// Recorder gets an Event on a Placement when its decisions change, and a
	// warning when it can not be followed; nil for none.
	Recorder record.EventRecorder
	// Logger gets a line about each change of decisions and about each failure.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_placement_*; nil for none.
	Registerer prometheus.Registerer
	// Queues gives the queue its metrics; nil for none.
	Queues workqueue.MetricsProvider
}

// Controller serves Placement.
type Controller struct {
	cfg     Config
	metrics *metrics
	fleet   *fleet

	clusters, placements, decisions cache.SharedIndexInformer
	synced                          []cache.InformerSynced // of the handlers: fleet and queue know what the caches know

	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	progress *progress

	mu       sync.Mutex
	failures map[string]error // guarded by mu: why a resource can not be read, until all have been
}

// New makes a controller. It does no I/O and starts nothing. It fails when the
// metrics are registered already.
func New(cfg Config) (*Controller, error) {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryAfter, retryAfterMax)
	c := &Controller{
		cfg: cfg, fleet: newFleet(), progress: newProgress(), failures: make(map[string]error),
		clusters:   informersv1.NewManagedClusterInformer(cfg.Client, 0, cache.Indexers{}),
		placements: informersv1beta1.NewPlacementInformer(cfg.Client, "", 0, cache.Indexers{}),
		decisions:  informersv1beta1.NewPlacementDecisionInformer(cfg.Client, "", 0, cache.Indexers{byPlacement: placementsOf}),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
			workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "placements", MetricsProvider: cfg.Queues}),
	}
	c.metrics = newMetrics(c.placements.GetStore())
	err := errors.Join(
		c.watch(c.clusters, "managedclusters", c.clusterChanged, c.clusterGone),
		c.watch(c.placements, "placements", c.placementChanged, c.placementGone),
		c.watch(c.decisions, "placementdecisions", c.decisionChanged, c.decisionChanged),
		c.metrics.register(cfg.Registerer),
	)
	if err != nil {
		c.queue.ShutDown()
		return nil, fmt.Errorf("placement: %w", err)
	}
	return c, nil
}

// watch has changed called for each object and each change, gone for each that is
// no more.
func (c *Controller) watch(informer cache.SharedIndexInformer, resource string, changed, gone func(any)) error {
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    changed,
		UpdateFunc: func(_, object any) { changed(object) },
		DeleteFunc: func(object any) {
			if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = last.Obj
			}
			gone(object)
		},
	})
	if err != nil {
		return fmt.Errorf("watch %s: %w", resource, err)
	}
	c.synced = append(c.synced, handler.HasSynced)
	return errors.Join(informer.SetTransform(slim), informer.SetWatchErrorHandlerWithContext(
		func(_ context.Context, _ *cache.Reflector, err error) { c.failed(resource, err) }))
}

// slim drops what the controller has no use for. What it writes in whole,
// PlacementDecisions and the status of Placements, it keeps, but for
// managedFields, which need not be sent back.
func slim(object any) (any, error) {
	switch o := object.(type) {
	case *clusterv1.ManagedCluster:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status = clusterv1.ManagedClusterStatus{ClusterClaims: o.Status.ClusterClaims}
	case *clusterv1beta1.Placement:
		o.ManagedFields = nil
	case *clusterv1beta1.PlacementDecision:
		o.ManagedFields = nil
	}
	return object, nil
}

// failed notes why a list or watch failed, and says what to do.
func (c *Controller) failed(resource string, err error) {
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err):
		c.cfg.Logger.Debug("the watch starts again", "resource", resource, "reason", err)
		return
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the hub's API serves no %s: apply deploy/crds to it: %w", resource, err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the hub may not read %s: grant list and watch on %s.%s: %w", resource, resource, clusterv1.GroupName, err)
	default:
		err = fmt.Errorf("list and watch %s: %w", resource, err)
	}
	c.mu.Lock()
	c.failures[resource] = err
	c.mu.Unlock()
	c.cfg.Logger.Warn("placements can not be served; trying again", "resource", resource, "error", err)
}

// Ready tells why placements are not served yet; nil once they are. It may be
// called from any goroutine, at any time.
func (c *Controller) Ready(context.Context) error {
	for _, synced := range c.synced {
		if !synced() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, err := range c.failures {
				return err
			}
			return errors.New("the placements, decisions and clusters have not been read yet")
		}
	}
	return nil
}

// Run serves placements until ctx ends; it returns nil then. An API server that
// can not be reached, or does not serve them yet, is tried again for ever. It
// must be called once.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	for _, informer := range []cache.SharedIndexInformer{c.clusters, c.placements, c.decisions} {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return nil
	}
	c.cfg.Logger.Debug("the placements, decisions and clusters are read")
	for range workers {
		running.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

func (c *Controller) work(ctx context.Context) {
	for {
		key, stopped := c.queue.Get()
		if stopped {
			return
		}
		c.progress.looked(key, time.Now())
		again, err := c.look(ctx, key)
		switch {
		case ctx.Err() != nil:
			c.queue.Forget(key)
		case err != nil:
			c.queue.AddRateLimited(key)
		default:
			c.queue.Forget(key)
			if again > 0 {
				c.queue.AddAfter(key, again)
			}
		}
		c.queue.Done(key)
	}
}

// enqueue has the placement looked at, at once when that has not been done
// lately.
func (c *Controller) enqueue(key types.NamespacedName) {
	c.queue.AddAfter(key, c.progress.rest(key, time.Now()))
}

func (c *Controller) clusterChanged(object any) {
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok {
		for _, key := range c.fleet.observe(cluster, time.Now()) {
			c.enqueue(key)
		}
	}
}

func (c *Controller) clusterGone(object any) {
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok {
		for _, key := range c.fleet.drop(cluster.Name, time.Now()) {
			c.enqueue(key)
		}
	}
}

func (c *Controller) placementChanged(object any) {
	if p, ok := object.(*clusterv1beta1.Placement); ok {
		key := keyOf(p)
		r, err := newRules(p)
		if err != nil {
			r = nil // no cluster concerns it before it is mended
		}
		c.fleet.follow(key, r)
		c.enqueue(key)
	}
}

func (c *Controller) placementGone(object any) {
	if p, ok := object.(*clusterv1beta1.Placement); ok {
		c.fleet.follow(keyOf(p), nil)
		c.enqueue(keyOf(p))
	}
}

func (c *Controller) decisionChanged(object any) {
	if d, ok := object.(*clusterv1beta1.PlacementDecision); ok {
		for _, key := range placementKeys(d) {
			c.enqueue(key)
		}
	}
}
