// Package works does what an edit of a ManifestWork goes through at the hub, from the watch event until
// the status of the agent is stored:
//
//   - cache holds all works, packed (packed.go and packedwork.go).
//   - watch decides what a watch event means, and tells the delivery engine (package source/delivery).
//   - publish adds the hub's finalizer, and says which works the engine publishes: those that carry it.
//   - status writes the statuses that the engine receives, and removes the finalizer from a deleted work
//     when its agent confirms the deletion.
//   - ready adds the condition Ready; statusdecision decides what of a status is written.
//   - pending knows which works no status of an agent is about yet, and why, and says so in the condition
//     Delivered and in status.delivery.
//
// The finalizer makes the deletion of a work wait for its cluster, and is added before the work is
// published: a published work cannot disappear from the hub unnoticed, not even while no hub runs.
// It costs one request per work. A work whose namespace cannot be part of a topic is never
// published and gets no finalizer, since no agent would confirm its deletion.
//
// The engine decides what is published: it compares works with what the cluster is known to have,
// so that a change of status publishes nothing.
//
// A status costs one patch, or nothing when it is stored already. Each write is for one UID: a work
// that was deleted and created again under the same name gets no status of its predecessor.
//
// A work is pending from the moment the hub sees its newest generation until a status of the agent
// for that generation is stored. A status that answers carries the condition with it, so that a quick
// answer costs no request. What is not answered within [Config.PendingDelay] is written by itself, one
// request per change of the cause, at most [maxWritesPerSecond] a second, and fewer while answers wait to
// be written. All that the next leader needs is in the API: a work whose status speaks of its generation
// is not pending. The times of the publishes since the last write are lost with a leader.
package works

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/pace"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// DefaultPendingDelay is the default of Config.PendingDelay.
const DefaultPendingDelay = 5 * time.Second

// Config configures a [Controller]. Its functions must not block.
type Config struct {
	// Cache holds the works, and is told of writes; required.
	Cache *Cache
	// Client writes; required.
	Client versioned.Interface
	// ManagedClusters of the hub; nil if it does not keep any.
	ManagedClusters *controller.Cache[*clusterv1.ManagedCluster]
	// Addressable reports whether anything can be sent to a cluster; required.
	Addressable func(wire.ClusterName) bool
	// Accepted reports whether a cluster gets works; required. Works of other clusters get no finalizer,
	// and so are not published, until [Controller.AcceptanceChanged].
	Accepted func(wire.ClusterName) bool
	// Served reports whether the hub serves a cluster: nobody is told that works of others are
	// pending; required.
	Served func(wire.ClusterName) bool
	// Workers is the number of finalizers that are added at a time, and of statuses of replica sets and of others that are written, of these as
	// far as [pace.Limit] allows; required.
	Workers int
	// Pace has statuses of replica sets give way to what people change by hand, with what others write; default: alone.
	Pace *pace.Gate
	// PendingDelay is how long a work may be pending before its status says so, and how long a new cause
	// may last; default 5s.
	PendingDelay time.Duration
	// Recorder gets an event about each work that cannot be published, or whose agent holds a newer
	// generation; default none.
	Recorder record.EventRecorder
	// Queues creates the metrics of the queues "finalizers" and "pending"; default none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metrics workwire_hub_finalizers_added_total, workwire_hub_finalizers_removed_total,
	// workwire_hub_status_writes_total, workwire_hub_delivery_seconds and workwire_hub_works_pending; default
	// none.
	Registerer prometheus.Registerer
	// Logger gets a line about each failure, and a debug line about each finalizer that is removed; default
	// slog.Default().
	Logger *slog.Logger
}

// Controller has works published, and stores what comes back. It is the [delivery.WorkStore] of the hub's
// engine. Its methods are safe for concurrent use.
type Controller struct {
	cfg        Config
	engine     *delivery.Engine // set by Run
	finalizers *controller.Controller[types.NamespacedName]
	pending    *controller.Controller[types.UID]
	limiter    writeLimiter
	statuses   *pace.Lane // limits the statuses that are written at a time

	added, removed, writes *prometheus.CounterVec
	hops                   *prometheus.HistogramVec

	mu           sync.Mutex
	started      time.Time                                   // guarded by mu: when Run was called
	wasConnected bool                                        // guarded by mu
	connected    bool                                        // guarded by mu
	entries      map[types.UID]*pendingWork                  // guarded by mu: the pending works
	clusters     map[wire.ClusterName]map[types.UID]struct{} // guarded by mu: the works of entries
}

var _ delivery.WorkStore = (*Controller)(nil)

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg, and
// fails when the metrics are registered already.
func New(cfg Config) (*Controller, error) {
	if err := required.Fields(cfg, "Cache", "Client", "Addressable", "Accepted", "Served", "Workers"); err != nil {
		return nil, fmt.Errorf("works: %w", err)
	}
	cfg.PendingDelay, cfg.Logger = cmp.Or(cfg.PendingDelay, DefaultPendingDelay), cmp.Or(cfg.Logger, slog.Default())
	c := &Controller{
		cfg: cfg, limiter: newWriteLimiter(), statuses: cmp.Or(cfg.Pace, &pace.Gate{}).NewLane(cfg.Workers), hops: newHops(),
		entries: make(map[types.UID]*pendingWork), clusters: make(map[wire.ClusterName]map[types.UID]struct{}),
		added: controller.NewCounter("finalizers_added_total",
			"Attempts to add the finalizer to a ManifestWork, by result: ok, gone (the work), conflict or failed (both are retried).", "result"),
		removed: controller.NewCounter("finalizers_removed_total",
			"Finalizers removed from ManifestWorks that agents have deleted, by result: ok, gone (the work) or failed (retried).", "result"),
		writes: controller.NewCounter("status_writes_total", "Statuses of works, by result: written (an agent's), delivery (written about a delivery, which the agent has not answered), unchanged, gone (the work), "+
			"refused (by the API server, not retried) or failed (retried).", "result"),
	}
	var err error
	c.finalizers, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "finalizers", Reconcile: c.addFinalizer, Workers: cfg.Workers,
		Watches: []controller.Watch{controller.On(cfg.Cache.Cache, c.workEdited)}, Queues: cfg.Queues, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("works: %w", err)
	}
	watches := []controller.Watch{controller.On(cfg.Cache.Cache, c.trackWork)}
	if cfg.ManagedClusters != nil {
		watches = append(watches, controller.On(cfg.ManagedClusters, c.clusterChanged))
	}
	c.pending, err = controller.New(controller.Config[types.UID]{
		Name: "pending", Reconcile: c.reportPending, Workers: 1, Watches: watches, Queues: cfg.Queues, Logger: cfg.Logger,
	})
	if err == nil {
		err = controller.Register(cfg.Registerer, c.added, c.removed, c.writes, c.hops, c.pendingGauge())
	}
	if err != nil {
		return nil, fmt.Errorf("works: %w", err)
	}
	return c, nil
}

// Run adds finalizers, has engine publish works, and writes which are pending, until ctx ends; it returns
// nil then, when everything that it started has ended. The caller runs the engine and the informers of
// the cache. Run must be called once.
func (c *Controller) Run(ctx context.Context, engine *delivery.Engine) error {
	c.engine = engine
	c.mu.Lock()
	c.started = time.Now()
	c.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.pending.Run(ctx) })
	group.Go(func() error { return c.finalizers.Run(ctx) })
	return group.Wait()
}
