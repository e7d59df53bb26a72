// Package finalizer is the hub's way out: it watches ManifestWorks, puts the
// finalizer on them that makes their deletion wait for the cluster, and tells
// the link, which publishes them, of every change.
//
//	controller, err := finalizer.New(finalizer.Config{Works: cache, Client: client, Link: link, ...})
//	...
//	err = controller.Run(ctx)
//
// The finalizer comes first: a work that was published can not vanish from the
// hub unnoticed, not even while no hub runs. It costs one request for each work.
// Only a work that nobody can be sent, as its namespace can not stand in a topic,
// gets none, since nobody would ever take it away.
//
// What is worth publishing is for the link to decide: it compares with what the
// cluster is known to have, so that a change of status publishes nothing.
package finalizer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/wire"
)

// DefaultWorkers is what the zero value of Config.Workers stands for.
const DefaultWorkers = 16

// Pauses between the tries of one work's finalizer.
const (
	retryAfter    = 5 * time.Millisecond
	retryAfterMax = 30 * time.Second
)

// Link is what publishes: a *delivery.Engine.
type Link interface {
	WorkChanged(types.UID)
	WorkRemoved(*workv1.ManifestWork)
}

// Config is what a [Controller] is made of. All fields but those said to be
// optional are required.
type Config struct {
	// Works is watched. It must be running.
	Works *works.Cache
	// Client writes finalizers.
	Client versioned.Interface
	// Link is told of changes. It must not wait.
	Link Link
	// Addressable tells whether a cluster can be sent anything.
	Addressable func(wire.ClusterName) bool
	// Accepted tells whether a cluster is to get works; nil for all. Those of one that is not get
	// no finalizer, and so are not published, until [Controller.Admit].
	Accepted func(wire.ClusterName) bool
	// Workers is how many finalizers are put at a time; 0 for 16.
	Workers int
	// Logger gets a line about each failure.
	Logger *slog.Logger
	// Queues gives the queue its metrics; nil for none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metric workwire_hub_finalizers_added_total; nil for
	// none.
	Registerer prometheus.Registerer
}

// Controller watches works and tells the link of them.
type Controller struct {
	cfg   Config
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]
	added *prometheus.CounterVec

	running atomic.Bool // queue is there
}

// New returns a controller. It does no I/O. It fails when the metric is registered
// already.
func New(cfg Config) (*Controller, error) {
	if cfg.Workers < 0 {
		return nil, fmt.Errorf("finalizer: %d workers: want at least 1, or 0 for %d", cfg.Workers, DefaultWorkers)
	}
	if cfg.Workers == 0 {
		cfg.Workers = DefaultWorkers
	}
	if cfg.Accepted == nil {
		cfg.Accepted = func(wire.ClusterName) bool { return true }
	}
	c := &Controller{cfg: cfg, added: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "hub", Name: "finalizers_added_total",
		Help: "Finalizers put on ManifestWorks, by result: ok, gone (the work), conflict or failed (both tried again).",
	}, []string{"result"})}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(c.added); err != nil {
			return nil, fmt.Errorf("finalizer: %w", err)
		}
	}
	return c, nil
}

// Run works until ctx ends; it returns nil then. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryAfter, retryAfterMax)
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "finalizers", MetricsProvider: c.cfg.Queues})
	defer c.queue.ShutDown()
	c.running.Store(true)
	stop, err := c.cfg.Works.Handle(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.observe(nil, workOf(object)) },
		UpdateFunc: func(before, after any) { c.observe(workOf(before), workOf(after)) },
		DeleteFunc: func(object any) { c.observe(workOf(object), nil) },
	})
	if err != nil {
		return err
	}
	defer stop()
	var workers sync.WaitGroup
	for range c.cfg.Workers {
		workers.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	workers.Wait()
	return nil
}

func workOf(object any) *workv1.ManifestWork {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	work, _ := object.(*workv1.ManifestWork)
	return work
}

// observe does what a change calls for, as far as it takes no time.
func (c *Controller) observe(before, after *workv1.ManifestWork) {
	if before == nil && after == nil {
		return
	}
	of := before
	if after != nil {
		of = after
	}
	s := decide(before, after, c.cfg.Addressable(wire.ClusterName(of.Namespace)))
	if s.gone != nil {
		c.cfg.Link.WorkRemoved(s.gone)
	}
	if s.changed != "" {
		c.cfg.Link.WorkChanged(s.changed)
	}
	if s.finalizer && c.cfg.Accepted(wire.ClusterName(of.Namespace)) {
		c.queue.Add(types.NamespacedName{Namespace: of.Namespace, Name: of.Name})
	}
}

// Admit tells that a cluster may have been accepted: its works get their
// finalizers. It never waits. It costs one pass over them.
func (c *Controller) Admit(cluster wire.ClusterName) {
	if !c.running.Load() || !c.cfg.Accepted(cluster) {
		return // Run looks at all of them
	}
	addressable := c.cfg.Addressable(cluster)
	for work := range c.cfg.Works.OfCluster(cluster) {
		if works.NeedsFinalizer(work, addressable) {
			c.queue.Add(types.NamespacedName{Namespace: work.Namespace, Name: work.Name})
		}
	}
}

func (c *Controller) work(ctx context.Context) {
	for {
		name, stopped := c.queue.Get()
		if stopped {
			return
		}
		if err := c.finalize(ctx, name); err != nil && ctx.Err() == nil {
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// finalize puts the finalizer on the work of this name if it needs it. Its error
// asks for another try.
func (c *Controller) finalize(ctx context.Context, name types.NamespacedName) error {
	work, ok := c.cfg.Works.Named(name)
	cluster := wire.ClusterName(name.Namespace)
	if !ok || !c.cfg.Accepted(cluster) || !works.NeedsFinalizer(work, c.cfg.Addressable(cluster)) {
		return nil
	}
	patch, err := kube.FinalizerPatch(work, workv1.ManifestWorkFinalizer)
	if err != nil {
		return err
	}
	_, err = c.cfg.Client.WorkV1().ManifestWorks(name.Namespace).Patch(ctx, name.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		c.added.WithLabelValues("ok").Inc()
		return nil
	case apierrors.IsNotFound(err):
		c.added.WithLabelValues("gone").Inc()
		return nil
	case apierrors.IsConflict(err):
		// The work has changed; the cache is about to know.
		c.added.WithLabelValues("conflict").Inc()
		return err
	case errors.Is(err, context.Canceled):
		return err
	default:
		c.added.WithLabelValues("failed").Inc()
		c.cfg.Logger.Warn("the finalizer can not be put on the work, which is not published before; trying again",
			"work", name.Name, "cluster", name.Namespace, "uid", work.UID, "error", err)
		return err
	}
}
