// Package finalizer adds the hub's finalizer to ManifestWorks and forwards their changes to the
// engine that publishes them.
//
// The finalizer makes the deletion of a work wait for its cluster, and is added before the work is
// published: a published work cannot disappear from the hub unnoticed, not even while no hub runs.
// It costs one request per work. A work whose namespace cannot be part of a topic is never
// published and gets no finalizer, since no agent would confirm its deletion.
//
// The engine decides what is published: it compares works with what the cluster is known to have,
// so that a change of status publishes nothing.
package finalizer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/wire"
)

// DefaultWorkers is the default of [Config.Workers].
const DefaultWorkers = 16

// Publisher publishes works: a *delivery.Engine. Its methods must not block.
type Publisher interface {
	// WorkChanged is called when the work with uid is new or has changed.
	WorkChanged(uid types.UID)
	// WorkRestored is called when the work with uid has changed and its agent may hold a later
	// state of it.
	WorkRestored(uid types.UID)
	// WorkRemoved is called when a work no longer exists; last is its last known state.
	WorkRemoved(last *workv1.ManifestWork)
	// WorkLost is called when a work no longer exists and nobody was seen deleting it; last is its
	// last known state.
	WorkLost(last *workv1.ManifestWork)
	// StatusesLost is called when statuses of a cluster's works may be older than before.
	StatusesLost(cluster wire.ClusterName)
}

// Clusters decides which clusters get works: a *clusters.Clusters.
type Clusters interface {
	// Accepted reports whether cluster gets works. Works of other clusters get no finalizer, and so
	// are not published, until [Controller.AcceptanceChanged]. It must not block.
	Accepted(cluster wire.ClusterName) bool
}

// Config configures a [Controller].
type Config struct {
	// Works is watched; required.
	Works *works.Cache
	// Client writes finalizers; required.
	Client versioned.Interface
	// Publisher is notified of changes; required.
	Publisher Publisher
	// Clusters decides which clusters get works; required.
	Clusters Clusters
	// Addressable reports whether anything can be sent to a cluster; required.
	Addressable func(wire.ClusterName) bool
	// Workers is the number of finalizers that are added at a time; default 16.
	Workers int
	// Queues creates the metrics of the queue "finalizers"; default none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metric workwire_hub_finalizers_added_total; default none.
	Registerer prometheus.Registerer
	// Logger gets a line about each failure; default slog.Default().
	Logger *slog.Logger
}

// Controller watches works. Its methods are safe for concurrent use.
type Controller struct {
	*controller.Controller[types.NamespacedName]
	cfg   Config
	added *prometheus.CounterVec
}

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg, and
// fails when the metric is registered already.
func New(cfg Config) (*Controller, error) {
	if err := required.Fields(cfg, "Works", "Client", "Publisher", "Clusters", "Addressable"); err != nil {
		return nil, fmt.Errorf("finalizer: %w", err)
	}
	c := &Controller{cfg: cfg, added: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "workwire", Subsystem: "hub", Name: "finalizers_added_total",
		Help: "Attempts to add the finalizer to a ManifestWork, by result: ok, gone (the work), conflict or failed (both are retried).",
	}, []string{"result"})}
	var err error
	c.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "finalizers", Reconcile: c.reconcile, Workers: cmp.Or(cfg.Workers, DefaultWorkers),
		Watches: []controller.Watch{controller.On(cfg.Works.Cache, c.workChanged)},
		Queues:  cfg.Queues, Logger: cfg.Logger,
	})
	if err == nil && cfg.Registerer != nil {
		err = cfg.Registerer.Register(c.added)
	}
	if err != nil {
		return nil, fmt.Errorf("finalizer: %w", err)
	}
	return c, nil
}

// workChanged handles a watch event: before is nil for a new work, after for one that was removed.
func (c *Controller) workChanged(before, after *workv1.ManifestWork) {
	latest := cmp.Or(after, before)
	cluster := wire.ClusterName(latest.Namespace)
	s := decide(before, after, c.cfg.Addressable(cluster), !c.HasSynced())
	switch {
	case s.removed != nil:
		c.cfg.Publisher.WorkRemoved(s.removed)
	case s.lost != nil:
		c.cfg.Publisher.WorkLost(s.lost)
	}
	if s.statuses {
		c.cfg.Publisher.StatusesLost(cluster)
	}
	switch {
	case s.restored:
		c.cfg.Publisher.WorkRestored(s.changed)
	case s.changed != "":
		c.cfg.Publisher.WorkChanged(s.changed)
	}
	if s.finalizer && c.cfg.Clusters.Accepted(cluster) {
		c.Add(controller.KeyOf(latest))
	}
}

// AcceptanceChanged queues the works of a cluster that may have been accepted. It never blocks and
// costs one pass over them.
func (c *Controller) AcceptanceChanged(cluster wire.ClusterName) {
	if !c.cfg.Clusters.Accepted(cluster) {
		return
	}
	addressable := c.cfg.Addressable(cluster)
	for work := range c.cfg.Works.OfCluster(cluster) {
		if works.NeedsFinalizer(work, addressable) {
			c.Add(controller.KeyOf(work))
		}
	}
}

// reconcile adds the finalizer to a work that needs it.
func (c *Controller) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	work, ok := c.cfg.Works.Get(key)
	cluster := wire.ClusterName(key.Namespace)
	if !ok || !c.cfg.Clusters.Accepted(cluster) || !works.NeedsFinalizer(work, c.cfg.Addressable(cluster)) {
		return 0, nil
	}
	patch, err := kube.FinalizerPatch(work, workv1.ManifestWorkFinalizer)
	if err != nil {
		return 0, err
	}
	_, err = c.cfg.Client.WorkV1().ManifestWorks(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if !errors.Is(err, context.Canceled) {
		c.added.WithLabelValues(controller.Result(err)).Inc()
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("add the finalizer to ManifestWork %s (uid %s): %w", key, work.UID, err)
	}
	return 0, nil
}
