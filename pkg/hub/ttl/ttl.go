// Package ttl deletes finished ManifestWorks: those that have asked for it with
// deleteOption.ttlSecondsAfterFinished, that long after their condition Complete
// became True.
//
//	collector, err := ttl.New(ttl.Config{Works: cache, Client: client, Logger: logger})
//	...
//	err = collector.Run(ctx)
//
// It waits by a timer for each work; a work that changes is looked at again.
package ttl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/works"
)

const (
	workers       = 4
	retryAfter    = 10 * time.Millisecond
	retryAfterMax = time.Minute
)

// Config is what a [Collector] is made of. All fields but those said to be
// optional are required.
type Config struct {
	// Works is watched. It must be running.
	Works *works.Cache
	// Client deletes works.
	Client versioned.Interface
	// Recorder gets an event for each work that is deleted; nil for none.
	Recorder record.EventRecorder
	// Logger gets a line for each work that is deleted, and about each failure.
	Logger *slog.Logger
	// Queues gives the queue its metrics; nil for none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metric workwire_hub_works_collected_total; nil for none.
	Registerer prometheus.Registerer
}

// Collector deletes finished works.
type Collector struct {
	cfg       Config
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	collected *prometheus.CounterVec
}

// New makes a collector. It does no I/O. It fails when the metric is registered
// already.
func New(cfg Config) (*Collector, error) {
	c := &Collector{cfg: cfg, collected: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "hub", Name: "works_collected_total",
		Help: "Finished ManifestWorks whose time to live has passed, by result of deleting them: ok, changed or failed (both looked at again).",
	}, []string{"result"})}
	if cfg.Registerer != nil {
		if err := cfg.Registerer.Register(c.collected); err != nil {
			return nil, fmt.Errorf("ttl: %w", err)
		}
	}
	return c, nil
}

// Due says when a work is to be deleted, and false when it is not, as it stands.
// It is not without ttlSecondsAfterFinished, before it is complete, while it is
// being deleted, and when it is one of a replica set, which would make it anew. A
// time to live below 0 is as good as 0: at once.
func Due(work *workv1.ManifestWork) (time.Time, bool) {
	option := work.Spec.DeleteOption
	if option == nil || option.TTLSecondsAfterFinished == nil || work.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	if _, ok := work.Labels[workv1.ReplicaSetLabelKey]; ok {
		return time.Time{}, false
	}
	// A condition of an earlier spec says nothing about this one.
	complete := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue || complete.ObservedGeneration != 0 && complete.ObservedGeneration < work.Generation {
		return time.Time{}, false
	}
	return complete.LastTransitionTime.Add(time.Duration(max(*option.TTLSecondsAfterFinished, 0)) * time.Second), true
}

// Run deletes works until ctx ends; it returns nil then. It must be called once.
func (c *Collector) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryAfter, retryAfterMax),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "ttl", MetricsProvider: c.cfg.Queues})
	defer c.queue.ShutDown()
	registration, err := c.cfg.Works.AddEventHandler(c.changed)
	if err != nil {
		return err
	}
	defer c.cfg.Works.RemoveEventHandler(registration)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	group.Wait()
	return nil
}

// changed queues a work for when it is due.
func (c *Collector) changed(_, work *workv1.ManifestWork) {
	if work == nil {
		return
	}
	if due, ok := Due(work); ok {
		c.queue.AddAfter(types.NamespacedName{Namespace: work.Namespace, Name: work.Name}, time.Until(due))
	}
}

func (c *Collector) work(ctx context.Context) {
	for {
		name, stopped := c.queue.Get()
		if stopped {
			return
		}
		if err := c.collect(ctx, name); err != nil && ctx.Err() == nil {
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

// collect deletes the work of this name if it is due. Its error asks for another
// try.
func (c *Collector) collect(ctx context.Context, name types.NamespacedName) error {
	work, ok := c.cfg.Works.Get(name)
	if !ok {
		return nil
	}
	due, ok := Due(work)
	if !ok {
		return nil
	}
	if left := time.Until(due); left > 0 {
		c.queue.AddAfter(name, left)
		return nil
	}
	log := c.cfg.Logger.With("work", work.Name, "cluster", work.Namespace, "uid", work.UID)
	err := c.cfg.Client.WorkV1().ManifestWorks(name.Namespace).Delete(ctx, name.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion},
	})
	switch {
	case err == nil:
		c.collected.WithLabelValues("ok").Inc()
		log.Info("a finished work is deleted: its time to live has passed", "finished", due)
		if c.cfg.Recorder != nil {
			c.cfg.Recorder.Eventf(work, corev1.EventTypeNormal, "Finished",
				"Deleted: it was complete for ttlSecondsAfterFinished of %d s", *work.Spec.DeleteOption.TTLSecondsAfterFinished)
		}
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err): // the cache is about to know
		c.collected.WithLabelValues("changed").Inc()
		return err
	case errors.Is(err, context.Canceled):
		return err
	default:
		c.collected.WithLabelValues("failed").Inc()
		log.Warn("a finished work can not be deleted; trying again", "error", err)
		return fmt.Errorf("delete the finished work %s: %w", name, err)
	}
}
