package clusters

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultKeepAlive = time.Minute
	DefaultSilence   = 5 * time.Minute
	DefaultGrace     = 5 * time.Minute
)

// workers is the number of clusters that are written at a time.
const workers = 8

// Pauses between the attempts to write one cluster.
const (
	backoff    = 20 * time.Millisecond
	maxBackoff = 10 * time.Second
)

// Listener is notified by [Clusters]. Its methods must not block, and may call any method of
// Clusters.
type Listener interface {
	// ClusterChanged is called when [Clusters.Accepted] or [Clusters.Serves] may have changed for a cluster: with
	// each watch event.
	ClusterChanged(cluster wire.ClusterName)
	// AcceptanceChanged is called when [Clusters.Accepted] has changed for a cluster.
	AcceptanceChanged(cluster wire.ClusterName)
	// ProbeCluster is called when an agent should send a message if it can: one that does not
	// announce itself and is silent for half of [Config.Silence], and one that has not sent a
	// message within a quarter of a keepalive after the hub connected. A status resync request
	// does, since agents that announce themselves then do so again.
	ProbeCluster(cluster wire.ClusterName)
	// PauseEnded is called when the annotation [workv1.PausedAnnotationKey] was removed from a
	// ManagedCluster. What waited is published then.
	PauseEnded(cluster wire.ClusterName)
	// ClusterGained and ClusterLost are those of [leadership.Fleet].
	ClusterGained(cluster wire.ClusterName)
	ClusterLost(cluster wire.ClusterName)
	// WorkRemoved is called for a work that the hub does not know and that somebody has asked to
	// delete; last is what is known of it.
	WorkRemoved(last *workv1.ManifestWork)
}

// Config configures [Clusters].
type Config struct {
	// Informers watch ManagedClusters; required.
	Informers *controller.Informers
	// Client writes ManagedClusters; required.
	Client versioned.Interface
	// Works are those that the hub knows; required.
	Works *works.Cache
	// Namespaces creates the namespaces of clusters; required.
	Namespaces corev1client.NamespaceInterface
	// AutoRegister creates a ManagedCluster and a namespace for each cluster that is heard from for
	// the first time. Without it a cluster that has no ManagedCluster is accepted.
	AutoRegister bool
	// Registers reports whether AutoRegister may create one for a cluster. It must not block. Default:
	// for all.
	Registers func(wire.ClusterName) bool
	// Shard is the clusters that the hub serves; default: all.
	Shard *leadership.Shard
	// AutoAccept creates ManagedClusters that are accepted. Those that exist, and those of a
	// cluster whose ManagedCluster was deleted, are left to the administrator.
	AutoAccept bool
	// KeepAlive is the keepalive of the agents' connections to the broker; default 1m.
	KeepAlive time.Duration
	// Silence is how long a cluster whose agent does not announce itself counts as present after
	// its last message; default 5m.
	Silence time.Duration
	// UnreachableGrace is how long a cluster is absent before it gets the taint unreachable; default
	// 5m. It counts from the transition of its condition Available.
	UnreachableGrace time.Duration
	// HubAbsence is how long the hub may be without a connection to the broker before clusters that
	// were present are Unknown; default [leadership.HubAbsence].
	HubAbsence time.Duration
	// Recorder gets an event when a cluster is registered, accepted or available, or no longer is,
	// and when the fleet brake is engaged or released; required.
	Recorder record.EventRecorder
	// Registerer gets the metrics about clusters, see docs/operations.md; default none.
	Registerer prometheus.Registerer
	// Queues creates the metrics of the queue "clusters"; default none.
	Queues workqueue.MetricsProvider
	// Logger gets a line about each event and each failure; default slog.Default().
	Logger *slog.Logger
}

// complete sets the defaults and reports what is missing.
func (c *Config) complete() error {
	c.KeepAlive, c.Silence = cmp.Or(c.KeepAlive, DefaultKeepAlive), cmp.Or(c.Silence, DefaultSilence)
	c.UnreachableGrace = cmp.Or(c.UnreachableGrace, DefaultGrace)
	c.HubAbsence = cmp.Or(c.HubAbsence, leadership.HubAbsence)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return required.Fields(c, "Informers", "Client", "Works", "Namespaces", "Recorder")
}

// Clusters knows which clusters are registered, accepted and present. Its methods are safe for
// concurrent use.
type Clusters struct {
	*controller.Controller[wire.ClusterName]
	cfg      Config
	policy   policy
	cache    *controller.Cache[*clusterv1.ManagedCluster]
	index    *clusterIndex
	metrics  *metrics
	listener Listener // set by Run
}

// New returns the clusters of a hub. It does no I/O and starts nothing. It reports every fault of
// cfg, and fails when the metrics are registered already.
func New(cfg Config) (*Clusters, error) {
	fail := func(err error) (*Clusters, error) { return nil, fmt.Errorf("clusters: %w", err) }
	if err := cfg.complete(); err != nil {
		return fail(err)
	}
	c := &Clusters{
		cfg: cfg, cache: cfg.Informers.ManagedClusters(), metrics: newMetrics(),
		policy: policy{
			autoRegister: cfg.AutoRegister, autoAccept: cfg.AutoAccept, registers: cfg.Registers, limits: newLimits(cfg.KeepAlive, cfg.Silence, cfg.UnreachableGrace),
			clock: walltime.New(), shard: cfg.Shard,
		},
	}
	c.policy.limits.hubAbsence = cfg.HubAbsence
	var err error
	c.Controller, err = controller.New(controller.Config[wire.ClusterName]{
		Name: "clusters", Reconcile: c.reconcile, Workers: workers, Backoff: backoff, MaxBackoff: maxBackoff,
		Watches: []controller.Watch{controller.On(c.cache, c.clusterChanged), controller.On(cfg.Works.Cache, c.workChanged)}, Queues: cfg.Queues, Logger: cfg.Logger,
	})
	if err != nil {
		return fail(err)
	}
	c.index = newClusterIndex(c.policy, c.metrics, c.cache, cfg.Works, c.Add)
	if err := controller.Register(cfg.Registerer, c.metrics.changes, c.metrics.ignored, c.metrics.writes, sizeCollector{c.index}, cfg.Shard); err != nil {
		return fail(err)
	}
	return c, nil
}

// Run registers clusters, writes what is known of them and notifies l until ctx ends; it returns nil then,
// when everything that it started has ended. The caller runs Config.Informers. Run must be called once.
func (c *Clusters) Run(ctx context.Context, l Listener) error {
	c.listener = l
	c.index.starting(time.Now())
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.Controller.Run(ctx) })
	group.Go(func() error { c.runTimer(ctx); return nil })
	group.Go(func() error { c.cfg.Shard.Run(ctx, fleet{c}); return nil })
	return group.Wait()
}

// Accepted reports whether works may be delivered to cluster: whether it has a ManagedCluster with
// hubAcceptsClient that is not being deleted, or, without AutoRegister, no ManagedCluster at all, and the hub
// serves it.
// It reads memory only. No cluster is accepted before [Clusters.WaitForSync] returns.
func (c *Clusters) Accepted(cluster wire.ClusterName) bool {
	return c.HasSynced() && c.policy.accepts(c.index.stored(cluster)) && c.cfg.Shard.Serves(cluster)
}

// Observe handles what the delivery engine notices of clusters: presence is decided by their messages, and
// by the hub's connection to the broker. Clusters that send nothing after it is established are no longer
// present: after 1.5 keepalives, or after [Config.Silence] if their agents do not announce themselves.
// While it is down, silence says nothing about clusters; after Config.HubAbsence, those that were present are
// Unknown until they are heard from again. It never blocks. A message costs the same however many clusters
// there are, and an agent that lists works a pass over its list.
func (c *Clusters) Observe(event delivery.Event) {
	now := time.Now()
	switch event := event.(type) {
	case delivery.ClusterHeard:
		c.index.messageReceived(event.Cluster, event.Presence, now)
	case delivery.ConnectionChanged:
		c.index.connectionChanged(event.Up, now)
	case delivery.UnknownWorks:
		c.index.unknownListed(event.Cluster, event.Listed, event.All, now)
	case delivery.UnknownStatus:
		if c.index.unknownReported(event.Status, now) {
			c.cfg.Logger.Warn("deletion held: the agent keeps a work that this hub does not know",
				"work", event.Meta.Name, "uid", event.UID, "cluster", event.Cluster)
		}
	case delivery.DivergenceChanged:
		c.index.found(event.Cluster, diverged, divergence(event), now)
	case delivery.TrustChanged:
		c.index.found(event.Cluster, untrusted, distrust(event), now)
	case delivery.NoiseChanged:
		c.index.found(event.Cluster, noisy, noise(event), now)
	}
}

// workChanged handles a watch event of a work: before is nil for a new one.
func (c *Clusters) workChanged(before, after *workv1.ManifestWork) {
	if after != nil && (before == nil || before.UID != after.UID) {
		c.index.workCreated(after, time.Now())
	}
}

// clusterChanged handles a watch event: before is nil for a new ManagedCluster, after for a deleted
// one.
func (c *Clusters) clusterChanged(before, after *clusterv1.ManagedCluster) {
	name := wire.ClusterName(cmp.Or(after, before).Name)
	c.listener.ClusterChanged(name)
	probe := false
	if after != nil && !c.cfg.Shard.Serves(name) {
		c.index.forget(name, time.Now())
		c.Add(name)
	} else {
		probe = c.index.clusterChanged(name, after, time.Now())
		// A cluster that was accepted without a ManagedCluster is to say again what it holds.
		probe = probe || before == nil && after != nil && c.HasSynced() && c.policy.accepts(nil)
	}
	if probe {
		c.listener.ProbeCluster(name)
	}
	if c.policy.accepts(before) != c.policy.accepts(after) {
		c.listener.AcceptanceChanged(name)
	}
	if isPaused(before) && !isPaused(after) {
		c.listener.PauseEnded(name)
	}
}

// fleet is the clusters as [leadership.Shard] claims them and lets them go.
type fleet struct{ *Clusters }

// Patch implements [leadership.Fleet].
func (f fleet) Patch(ctx context.Context, cluster *clusterv1.ManagedCluster, patch any) (*clusterv1.ManagedCluster, error) {
	return f.patch(ctx, cluster, patch)
}

// ClusterGained implements [leadership.Fleet].
func (f fleet) ClusterGained(name wire.ClusterName) {
	f.index.clusterChanged(name, f.index.stored(name), time.Now())
	f.listener.ClusterGained(name)
	f.listener.AcceptanceChanged(name)
}

// ClusterLost implements [leadership.Fleet].
func (f fleet) ClusterLost(name wire.ClusterName) { f.listener.ClusterLost(name) }

// isPaused reports whether a ManagedCluster, which may be nil, says that its works are paused.
func isPaused(cluster *clusterv1.ManagedCluster) bool {
	return cluster != nil && workv1.IsPaused(cluster)
}
