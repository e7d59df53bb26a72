// Package hub delivers the ManifestWorks of a Kubernetes API to the agents of their clusters and
// stores the statuses that come back. A work's namespace is the name of its cluster.
//
//	h, err := hub.New(hub.Config{
//		REST: restConfig, Source: "hub1", Topics: topics, Transport: transport, Election: hub.NewElection("work-hub-hub1"), ...
//	})
//	...
//	err = h.Run(ctx)
//
// What it is made of is in packages below internal: leadership decides whether this process publishes, and for
// which clusters; controller has the shared informers and the frame of all controllers;
// works has the cache of ManifestWorks, forwards their changes to the delivery engine (package
// source/delivery), which publishes them, and stores the statuses that come back. The other
// controllers can be disabled, see [Controllers]: clusters decides which clusters are accepted and
// present, clustersets says which of them a namespace may use, placement selects clusters, replicaset creates works for them in the order that rollout
// decides, and ttl deletes works that have finished.
//
// All state is on the API server. A hub can be restarted or replaced by another replica at any
// time.
//
// One of several replicas leads, by a Lease. The others keep their caches up to date, and do nothing
// else: no controller runs, nothing is written, and there is no connection to the broker. At the
// beginning of its term, a new leader proves that its caches hold everything that was written
// before ([controller.Informers.CatchUp]), and so sees all writes of the leader before it. A Hub has
// one term at most, so that it knows no own writes of an earlier one.
package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/leadership"
	"github.com/workwire/workwire/pkg/hub/internal/tally"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/events"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/runtime/pace"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultRequestTimeout   = 70 * time.Second
	DefaultWorkers          = 16
	DefaultPendingDelay     = works.DefaultPendingDelay
	DefaultUnreachableGrace = clusters.DefaultGrace
	DefaultMaxClusterGroups = tally.DefaultMaxGroups
)

// Config configures a [Hub].
type Config struct {
	// REST is how to reach the API server that holds the works and the Lease; required.
	REST *rest.Config
	// Source is the id under which the hub owns its works; required.
	Source wire.SourceID
	// Topics of the transport; required. They must be valid for Source.
	Topics wire.Topics
	// Transport to the agents; required. The hub runs it while it leads.
	Transport transport.Transport
	// Sign signs every event, so that agents with the option --trusted-keys accept it; the method
	// Sign of a signing.Signer does (docs/protocol.md, Signatures). Default: none is signed.
	Sign func(*cloudevents.Event) error
	// Seal seals the specs of clusters that have a key (docs/protocol.md, Sealed data); it needs Sign.
	// Default: none is sealed.
	Seal *sealing.Sealer
	// TrustedAgents are the keys that the agents of all clusters sign their statuses with: of others,
	// nothing counts, and a cluster without a key is not registered (docs/signing.md). Default: all
	// statuses are believed.
	TrustedAgents *signing.TrustedAgents
	// SignatureMaxAge is how old the signature of a status may be, and how far ahead of the hub's clock.
	// Negative: no limit; default 1 h.
	SignatureMaxAge time.Duration
	// Election elects the leader among replicas; required.
	Election leader.Options
	// ClusterSelector selects the ManagedClusters that the hub serves by their labels, where several hubs
	// share the API and the source id; each has a Lease of its own (docs/hub-replicas.md). It needs an election
	// and ControllerClusters. Default: the hub serves all clusters.
	ClusterSelector labels.Selector
	// Controllers to run, as [ChooseControllers] reads them; nil: all, empty: none.
	Controllers []string
	// AutoRegister creates a ManagedCluster for each cluster that is heard from for the first time,
	// and AutoAccept accepts those. With AutoRegister no cluster gets works before it is accepted.
	// Both need ControllerClusters.
	AutoRegister, AutoAccept bool
	// WithoutClusterSets has the Placements and ManifestWorkReplicaSets of every namespace reach all
	// clusters; default: those of the ManagedClusterSets that are bound to it.
	WithoutClusterSets bool
	// WithoutReadiness has agents report whether the objects of a work are ready only where the work asks for it, with
	// [workv1.ReportReadinessAnnotationKey]; default: where it does not say otherwise.
	WithoutReadiness bool
	// Now returns the time that rollouts go by; default time.Now.
	Now func() time.Time
	// KeepAlive is the keepalive of the agents' connections to the broker; default 1m.
	KeepAlive time.Duration
	// UnreachableGrace is how long a cluster is absent before it gets the taint unreachable;
	// default 5m.
	UnreachableGrace time.Duration
	// RequestTimeout is how long a request to the API server may take, except for watches, at least
	// 1ms; default 70s: the API server itself ends requests after a minute.
	RequestTimeout time.Duration
	// Workers is the number of finalizers, of statuses of works that replica sets have made, of those of other works, and of works of replica
	// sets, that are written at a time; default 16. Of all but finalizers fewer while writes wait for each other (package pace).
	Workers int
	// Joining lets clusters join over the broker (docs/join.md); it needs ControllerClusters. Default: none can.
	Joining *Joining
	// ClusterProfiles is the namespace in which the hub keeps a ClusterProfile for each accepted cluster, as the cluster manager
	// [ClusterManager] (docs/clusters.md); it needs ControllerClusters. Default: none.
	ClusterProfiles string
	// HubAbsence, for tests; default 1m.
	HubAbsence time.Duration
	// InstanceInterval, for tests; default 30s.
	InstanceInterval time.Duration
	// PendingDelay is how long a work may go without an answer of its cluster before its status says
	// why; default 5s.
	PendingDelay time.Duration
	// Audit gets a record for each spec published, each status received, and each approval that a rollout acts on; default none.
	Audit *audit.Log
	// ClusterGroupLabel is the label of ManagedClusters by whose value works are counted in metrics, for
	// MaxClusterGroups values, default 20; default: all works are counted together.
	ClusterGroupLabel string
	MaxClusterGroups  int
	// TracerProvider makes the spans of changes (docs/tracing.md); default none.
	TracerProvider trace.TracerProvider
	// Registerer gets the metrics workwire_hub_*, workwire_source_* and workwire_queue_*; default
	// none.
	Registerer prometheus.Registerer
	// Logger gets the hub's log. Lines about a work have its name, cluster and uid. Default
	// slog.Default().
	Logger *slog.Logger
}

// NewElection returns the default options of a hub's election: clusters wait for their hub, so
// another replica takes over within 5 seconds after the leader vanished.
func NewElection(name string) leader.Options {
	o := leader.NewOptions(name)
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 4*time.Second, 3*time.Second, 500*time.Millisecond
	return o
}

// complete sets the defaults and reports every fault. It returns the topics of Source.
func (c *Config) complete() (wire.SourceTopics, error) {
	errs := append([]error{required.Fields(c, "REST", "Transport")}, c.Validate()...)
	c.Controllers, _ = c.chosen()
	c.RequestTimeout = cmp.Or(c.RequestTimeout, DefaultRequestTimeout)
	if c.RequestTimeout < time.Millisecond {
		errs = append(errs, fmt.Errorf("RequestTimeout must be at least 1ms, got %s", c.RequestTimeout))
	}
	c.Workers = cmp.Or(c.Workers, DefaultWorkers)
	if c.REST != nil {
		c.REST = kube.WithTimeout(c.REST, c.RequestTimeout)
		kube.NoticeRestore(c.REST)
		kube.TraceRequests(c.REST, tracing.New(c.TracerProvider))
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	topics, err := c.Topics.ForSource(c.Source)
	return topics, errors.Join(append(append(errs, c.Election.Validate()...), err)...)
}

// chosen returns the names of the controllers to run.
func (c *Config) chosen() ([]string, error) {
	if c.Controllers == nil {
		return Controllers(), nil
	}
	return ChooseControllers(c.Controllers)
}

// Validate reports every fault in how the controllers and clusters of the hub are chosen. Its errors name the
// fields of Config; a command puts its flags in place of them. New does the same.
func (c *Config) Validate() []error {
	var errs []error
	chosen, err := c.chosen()
	if err != nil {
		errs = append(errs, fmt.Errorf("Controllers: %w", err))
	}
	withoutClusters := err == nil && !slices.Contains(chosen, ControllerClusters)
	if c.AutoAccept && !c.AutoRegister {
		errs = append(errs, errors.New("AutoAccept needs AutoRegister: set both, or neither"))
	}
	if c.AutoRegister && withoutClusters {
		errs = append(errs, fmt.Errorf("AutoRegister needs the controller %s, which Controllers disables", ControllerClusters))
	}
	if c.Joining != nil && withoutClusters {
		errs = append(errs, fmt.Errorf("Joining needs the controller %s, which Controllers disables", ControllerClusters))
	}
	errs = append(errs, c.validateProfiles(withoutClusters)...)
	if c.ClusterSelector == nil {
		return errs
	}
	if withoutClusters {
		errs = append(errs, fmt.Errorf("ClusterSelector needs the controller %s, which Controllers disables", ControllerClusters))
	}
	if c.Election.Disabled {
		errs = append(errs, errors.New("ClusterSelector needs leader election, which Election.Disabled disables: other hubs know by the Lease whether this one runs"))
	}
	if c.Election.Name == SharedLease(c.Source) {
		errs = append(errs, fmt.Errorf("Election.Name must not be %s with ClusterSelector: that is the Lease of a hub without one", c.Election.Name))
	}
	if c.AutoRegister && !c.ClusterSelector.Matches(labels.Set{}) {
		errs = append(errs, errors.New("AutoRegister needs a ClusterSelector that selects clusters without labels, since new ones have none, such as shard notin (a,b)"))
	}
	return errs
}

// SharedLease returns the name of the Lease of a hub that serves all clusters of source, for which hubs
// with a ClusterSelector stand, too: the one that holds it runs the controllers that are about no single
// cluster.
func SharedLease(source wire.SourceID) string { return leadership.SharedLease(source) }

// Hub is one replica. Its methods are safe for concurrent use.
type Hub struct {
	cfg        Config
	informers  *controller.Informers
	cache      *works.Cache
	works      *works.Controller
	delivery   *delivery.Engine
	leadership *leadership.Leadership
	fleet      fleet
	telling    sync.Mutex         // see tellCluster
	told       bool               // guarded by telling: the delivery engine knows the clusters of the start
	clusters   *clusters.Clusters // nil when it is disabled
	tally      *tally.Tally
	pace       pace.Gate                    // of statuses, and of works of replica sets
	events     *events.Recorder             // nil when no controller records any
	core       corev1client.CoreV1Interface // likewise
	global     []component                  // are about no single cluster
}

// component is a controller that only reads and writes the API.
type component struct {
	name  string
	run   func(context.Context) error
	ready func(context.Context) error // nil: always
}

// New returns a hub. It does no I/O and starts nothing. It reports every fault of cfg.
func New(cfg Config) (*Hub, error) {
	topics, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{cfg: cfg, fleet: openFleet{}}
	if err := h.build(topics); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return h, nil
}

// Run waits until this replica leads and then works until ctx ends; it returns nil then, after
// everything that it started has ended. It fails when leadership is lost or cannot be acquired, see
// [leader.Run], and on errors that no retry can repair. An API server or a broker that cannot be
// reached is retried forever. Run must be called once.
func (h *Hub) Run(ctx context.Context) error {
	reading, stop := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop()
	readers.Go(func() { _ = h.informers.Run(reading) }) // returns nil
	if h.events != nil {
		readers.Go(func() { _ = h.events.Run(reading) }) // returns nil; also of a standby, which records none, since its end stops the recorder
	}
	err := h.leadership.Run(ctx, leadership.Term{CatchUp: h.informers.CatchUp, Serve: h.serve, Global: h.runGlobal})
	if err != nil && (ctx.Err() == nil || errors.Is(err, leader.ErrLost)) {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// serve delivers works and runs the controllers that are about single clusters, on caches that are current
// or being filled.
func (h *Hub) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(components ...func(context.Context) error) {
		for _, component := range components {
			group.Go(func() error { return component(ctx) })
		}
	}
	if h.clusters != nil {
		run(func(ctx context.Context) error { return h.clusters.Run(ctx, clusterListener{h.delivery, h}) })
	}
	if h.cache.WaitForSync(ctx) && (h.clusters == nil || h.clusters.WaitForSync(ctx)) {
		h.tellClusters()
		h.cfg.Logger.Info("caches synced, connecting to the broker", "controllers", h.cfg.Controllers)
		run(h.delivery.Run, func(ctx context.Context) error { return h.works.Run(ctx, h.delivery) }, h.tally.Run)
	}
	return group.Wait()
}

// runGlobal runs the controllers that are about no single cluster.
func (h *Hub) runGlobal(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range h.global {
		group.Go(func() error { return c.run(ctx) })
	}
	return group.Wait()
}

// Checks returns the readiness checks of the hub. A standby is ready if it can take over: if its
// caches are filled and kept up to date.
func (h *Hub) Checks() []serve.Check {
	leads := h.leadership.Leads
	checks := []serve.Check{
		{Name: "caches", Func: func(ctx context.Context) error { return cmp.Or(h.informers.Ready(ctx), h.leadership.Ready()) }},
		check("works", leads, h.cache.Ready),
		check("broker", leads, func(context.Context) error {
			if !h.delivery.Connected() {
				return errors.New("not connected; the log says why")
			}
			return nil
		}),
	}
	for _, c := range h.global {
		if c.ready != nil {
			checks = append(checks, check(c.name, h.leadership.LeadsGlobally, c.ready))
		}
	}
	if h.clusters != nil {
		checks = append(checks, check(ControllerClusters, leads, h.clusters.Ready))
	}
	return checks
}

// check returns a check that passes unless this replica runs what it is about.
func check(name string, runs func() bool, ready func(context.Context) error) serve.Check {
	return serve.Check{Name: name, Func: func(ctx context.Context) error {
		if !runs() {
			return nil
		}
		return ready(ctx)
	}}
}
