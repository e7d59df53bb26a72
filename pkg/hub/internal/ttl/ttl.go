// Package ttl deletes finished ManifestWorks: those with deleteOption.ttlSecondsAfterFinished, that
// long after their condition Complete became True.
//
//	c, err := ttl.New(ttl.Config{Works: works, Client: client, Recorder: recorder})
//	...
//	err = c.Run(ctx)
package ttl

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
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
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/required"
)

// Config configures a [Controller].
type Config struct {
	// Works is the cache of works; required.
	Works *works.Cache
	// Client deletes works; required.
	Client versioned.Interface
	// Recorder gets an event for each deleted work; required.
	Recorder record.EventRecorder
	// Logger gets a line for each deleted work and each failure; default slog.Default().
	Logger *slog.Logger
	// Queues creates the metrics of the queue; default none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metric workwire_hub_works_collected_total; default none.
	Registerer prometheus.Registerer
}

// Controller deletes finished works.
type Controller struct {
	*controller.Controller[types.NamespacedName]
	cfg     Config
	deleted *prometheus.CounterVec
}

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg, and
// fails if the metric is registered already.
func New(cfg Config) (*Controller, error) {
	if err := required.Fields(cfg, "Works", "Client", "Recorder"); err != nil {
		return nil, fmt.Errorf("ttl: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	c := &Controller{cfg: cfg, deleted: controller.NewCounter("works_collected_total",
		"Deletions of finished ManifestWorks after their time to live, by result: ok, gone, conflict (the work has changed) or failed.", "result")}
	var err error
	c.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "ttl", Reconcile: c.reconcile, Queues: cfg.Queues, Logger: cfg.Logger,
		Watches: []controller.Watch{controller.On(cfg.Works.Cache, func(_, work *workv1.ManifestWork) {
			if due, ok := Due(work); ok {
				c.AddAfter(controller.KeyOf(work), time.Until(due))
			}
		})},
	})
	if err == nil {
		err = controller.Register(cfg.Registerer, c.deleted)
	}
	if err != nil {
		return nil, fmt.Errorf("ttl: %w", err)
	}
	return c, nil
}

// maxTTL is what a Duration can hold, 292 years: more would be a time that has passed.
const maxTTL = int64(math.MaxInt64 / time.Second)

// Due returns when a work must be deleted. It returns false if the work is nil, has no
// ttlSecondsAfterFinished, is not complete, is being deleted, or belongs to a replica set, which
// would create it again. A negative time to live counts as 0. The time to live does not begin before
// the creation of the work, as it would by the clock of a cluster that was never set.
func Due(work *workv1.ManifestWork) (time.Time, bool) {
	if work == nil || work.Spec.DeleteOption == nil || work.Spec.DeleteOption.TTLSecondsAfterFinished == nil || work.DeletionTimestamp != nil {
		return time.Time{}, false
	}
	if _, ok := work.Labels[workv1.ReplicaSetLabelKey]; ok {
		return time.Time{}, false
	}
	// A condition that observes an earlier generation does not apply to the current spec.
	complete := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkComplete)
	if complete == nil || complete.Status != metav1.ConditionTrue || complete.ObservedGeneration != 0 && complete.ObservedGeneration < work.Generation {
		return time.Time{}, false
	}
	from := complete.LastTransitionTime.Time
	if created := work.CreationTimestamp.Time; from.Before(created) {
		from = created
	}
	return from.Add(time.Duration(min(max(*work.Spec.DeleteOption.TTLSecondsAfterFinished, 0), maxTTL)) * time.Second), true
}

// reconcile deletes the work if it is due.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (requeueAfter time.Duration, err error) {
	work, _ := c.cfg.Works.Get(key)
	due, ok := Due(work)
	if left := time.Until(due); !ok || left > 0 {
		return max(left, 0), nil
	}
	err = c.cfg.Client.WorkV1().ManifestWorks(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &work.UID, ResourceVersion: &work.ResourceVersion},
	})
	c.deleted.WithLabelValues(controller.Result(err)).Inc()
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("delete finished ManifestWork %s: %w", key, err)
	}
	c.cfg.Logger.Info("finished work deleted after its time to live",
		"work", work.Name, "cluster", work.Namespace, "uid", work.UID, "finished", due)
	c.cfg.Recorder.Eventf(work, corev1.EventTypeNormal, workv1.EventFinished,
		"Deleted: it was complete for ttlSecondsAfterFinished of %d s", *work.Spec.DeleteOption.TTLSecondsAfterFinished)
	return 0, nil
}
