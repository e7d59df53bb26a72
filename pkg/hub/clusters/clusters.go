package clusters

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	informers "github.com/workwire/workwire/pkg/client/informers/externalversions/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultKeepAlive = time.Minute
	DefaultSilence   = 5 * time.Minute
	DefaultWorkers   = 8
)

// Pauses between the tries of one cluster's writes.
const (
	retryAfter    = 20 * time.Millisecond
	retryAfterMax = 10 * time.Second
)

// Config is what [Clusters] are made of. All fields but those said to be optional
// are required.
type Config struct {
	// Client of the hub's API reads and writes ManagedClusters.
	Client versioned.Interface
	// Namespaces makes the namespaces of clusters; required with AutoRegister.
	Namespaces corev1client.NamespaceInterface
	// AutoRegister makes a ManagedCluster, and a namespace, for a cluster first heard
	// from. Without it a cluster that has no ManagedCluster is accepted.
	AutoRegister bool
	// AutoAccept makes ManagedClusters that are accepted. Those that exist, and those
	// of a cluster whose ManagedCluster was deleted, are left to the administrator.
	AutoAccept bool
	// KeepAlive is that of the agents' connections to the broker, at least 1 ms; 0
	// for a minute.
	KeepAlive time.Duration
	// Silence is how long a cluster whose agent announces nothing counts as present
	// after its last message, at least 1 ms; 0 for 5 minutes.
	Silence time.Duration
	// Workers is how many clusters are written at a time; 0 for 8.
	Workers int
	// Recorder gets an event about each ManagedCluster that is registered, accepted
	// or no longer, available or no longer; nil for none.
	Recorder record.EventRecorder
	// Changed is called when [Clusters.Accepted] may have changed for a cluster. It
	// must not block, and may call any method. Optional.
	Changed func(wire.ClusterName)
	// Asks is called when an agent is to give a sign of life, if it can: one that
	// announces nothing and is silent for half of Silence, and one that has not shown
	// a quarter of a keepalive after the hub has connected. A status resync request
	// does: agents that announce themselves do so again. It must not block, and may
	// call any method. Optional.
	Asks func(wire.ClusterName)
	// Logger gets a line about each event, and about failures.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_clusters, workwire_hub_clusters_accepted,
	// workwire_hub_presence_changes_total, workwire_hub_clusters_unnoted_total and
	// workwire_hub_cluster_writes_total; nil for none.
	Registerer prometheus.Registerer
	// Queues gives the queue "clusters" its metrics; nil for none.
	Queues workqueue.MetricsProvider
}

// validate fills in the defaults and reports every fault.
func (c *Config) validate() error {
	var faults []error
	for _, field := range []struct {
		name    string
		missing bool
	}{{"Client", c.Client == nil}, {"Namespaces", c.AutoRegister && c.Namespaces == nil}, {"Logger", c.Logger == nil}} {
		if field.missing {
			faults = append(faults, fmt.Errorf("%s is required", field.name))
		}
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"KeepAlive", &c.KeepAlive, DefaultKeepAlive}, {"Silence", &c.Silence, DefaultSilence}} {
		if *d.value == 0 {
			*d.value = d.usual
		}
		if *d.value < time.Millisecond {
			faults = append(faults, fmt.Errorf("%s is %s: want at least 1ms, or 0 for %s", d.name, *d.value, d.usual))
		}
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.Workers < 0 {
		faults = append(faults, fmt.Errorf("%d Workers: want at least 1, or 0 for %d", c.Workers, DefaultWorkers))
	}
	return errors.Join(faults...)
}

// Clusters is the fleet, as the hub knows it. Its methods may be called from any
// goroutine.
type Clusters struct {
	cfg      Config
	log      *slog.Logger
	policy   policy
	informer cache.SharedIndexInformer
	handled  cache.ResourceEventHandlerRegistration
	roster   *roster
	metrics  *metrics

	mu      sync.Mutex
	failure error // guarded by mu: why the last list or watch failed
}

// New makes the fleet. It does no I/O and starts nothing. It reports every fault of
// cfg, and fails when the metrics are registered already.
func New(cfg Config) (*Clusters, error) {
	fail := func(err error) (*Clusters, error) { return nil, fmt.Errorf("clusters: %w", err) }
	if err := cfg.validate(); err != nil {
		return fail(err)
	}
	c := &Clusters{
		cfg: cfg, log: cfg.Logger,
		policy: policy{
			autoRegister: cfg.AutoRegister, autoAccept: cfg.AutoAccept, limits: newLimits(cfg.KeepAlive, cfg.Silence),
		},
		informer: informers.NewManagedClusterInformer(cfg.Client, 0, cache.Indexers{}),
	}
	c.metrics = newMetrics()
	c.roster = newRoster(c.policy, c.metrics)
	if err := c.metrics.register(cfg.Registerer, c.roster); err != nil {
		return fail(err)
	}
	var err error
	c.handled, err = c.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { c.stored(nil, clusterOf(object)) },
		UpdateFunc: func(before, after any) { c.stored(clusterOf(before), clusterOf(after)) },
		DeleteFunc: func(object any) { c.stored(clusterOf(object), nil) },
	})
	err = errors.Join(err, c.informer.SetTransform(slim), c.informer.SetWatchErrorHandlerWithContext(c.failed))
	if err != nil {
		return fail(err)
	}
	return c, nil
}

// slim drops what the fleet has no use for.
func slim(object any) (any, error) {
	if cluster, ok := object.(*clusterv1.ManagedCluster); ok {
		cluster.ManagedFields = nil
	}
	return object, nil
}

func clusterOf(object any) *clusterv1.ManagedCluster {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	cluster, _ := object.(*clusterv1.ManagedCluster)
	return cluster
}

// Run keeps the ManagedClusters until ctx ends; it returns nil then, when all that
// it started has ended. A server that can not be reached, or that has no
// ManagedClusters yet, is tried again for ever. It must be called once.
func (c *Clusters) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[wire.ClusterName](retryAfter, retryAfterMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
		workqueue.TypedRateLimitingQueueConfig[wire.ClusterName]{Name: "clusters", MetricsProvider: c.cfg.Queues})
	var running sync.WaitGroup
	defer running.Wait()
	defer queue.ShutDown()
	running.Go(func() { c.informer.RunWithContext(ctx) })
	if !c.WaitForSync(ctx) {
		return nil
	}
	c.roster.open(queue.Add)
	running.Go(func() { c.watch(ctx) })
	for range c.cfg.Workers {
		running.Go(func() { c.work(ctx, queue) })
	}
	<-ctx.Done()
	return nil
}

// WaitForSync waits until all ManagedClusters are known, and reports false when
// ctx ended before.
func (c *Clusters) WaitForSync(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.handled.HasSyncedChecker().Done():
		return true
	}
}

// Ready tells why not all ManagedClusters are known yet; nil once they are.
func (c *Clusters) Ready(context.Context) error {
	if c.handled.HasSynced() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	return errors.New("the ManagedClusters have not been read yet")
}

// failed notes why a list or watch failed, and says what to do.
func (c *Clusters) failed(_ context.Context, _ *cache.Reflector, err error) {
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsTimeout(err):
		c.log.Debug("the watch of ManagedClusters starts again", "reason", err)
		return
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the hub's API serves no ManagedClusters: apply deploy/crds to it: %w", err)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the hub may not read ManagedClusters: grant get, list, watch, create and patch on managedclusters.%s, "+
			"patch on managedclusters/status, and get and create on namespaces: %w", clusterv1.GroupName, err)
	default:
		err = fmt.Errorf("list and watch ManagedClusters: %w", err)
	}
	c.mu.Lock()
	c.failure = err
	c.mu.Unlock()
	c.log.Warn("the ManagedClusters can not be read; trying again", "error", err)
}

// Accepted tells whether works may be delivered to cluster: whether it has a
// ManagedCluster with hubAcceptsClient that is not being deleted, or, without
// AutoRegister, none at all. It costs a look into memory. Before [Clusters.WaitForSync]
// nothing is accepted.
func (c *Clusters) Accepted(cluster wire.ClusterName) bool {
	return c.handled.HasSynced() && c.roster.accepted(cluster)
}

// Heard tells of a message that comes from cluster, as the broker vouches: p is what
// its agent says of itself, nil for any other message. It never waits, and costs the
// same however many clusters there are.
func (c *Clusters) Heard(cluster wire.ClusterName, p *wire.Presence) {
	c.roster.heard(cluster, p, time.Now())
}

// Connected tells that the hub is connected to the broker. Clusters that do not show
// from now on are no longer present, after 1.5 keepalives, or after Silence if their
// agents announce nothing.
func (c *Clusters) Connected() { c.roster.connect(time.Now()) }

// Lost tells that the hub is not connected any more: until it is, silence says
// nothing about clusters.
func (c *Clusters) Lost() { c.roster.disconnect() }

// stored is called for each change of a ManagedCluster, nil standing for none.
func (c *Clusters) stored(before, after *clusterv1.ManagedCluster) {
	of := after
	if of == nil {
		of = before
	}
	if of == nil {
		return
	}
	name := wire.ClusterName(of.Name)
	was := c.policy.accepts(before)
	if c.roster.stored(name, before, after, time.Now()) && c.cfg.Asks != nil {
		c.cfg.Asks(name)
	}
	if c.policy.accepts(after) != was && c.cfg.Changed != nil {
		c.cfg.Changed(name)
	}
}
