// Package hub connects ManifestWorks on a Kubernetes API to the agents of their
// clusters: their specs go out over a transport, statuses come back into their
// status subresource, and a finalizer makes a deletion wait for the cluster. A
// work's namespace names its cluster.
//
//	h, err := hub.New(hub.Config{
//		REST: restConfig, Source: "hub1", Topics: topics, Transport: link, Election: leader.NewOptions("work-hub-hub1"), ...
//	})
//	...
//	err = h.Run(ctx)
//
// The parts, each in a folder: works, the cache of what is on the API server;
// finalizer, from there to the delivery engine; statusreceiver, from that engine to the API server. The
// engine (package source/delivery) speaks the protocol and knows what agents know.
// Beside them run controllers, see [Controllers]: clusters says who is accepted
// and there, placement chooses clusters, replicaset makes works for them, with
// rollout to decide how fast, and ttl deletes those that are finished.
// Nothing is kept but what is on the API server, so a hub can be restarted, or
// replaced by another replica, at any time.
//
// Of several replicas one leads, by a Lease. The others neither read works nor
// connect to the broker: the new leader reads them when its term has begun, and
// therefore knows everything that the one before it has published.
package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/clusters"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/finalizer"
	"github.com/workwire/workwire/pkg/hub/statusreceiver"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/serve"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config is what a [Hub] is made of. All fields but those said to be optional
// are required.
type Config struct {
	// REST says how to reach the API server that holds the works and the Lease.
	REST *rest.Config
	// Source is the id under which the hub owns its works.
	Source wire.SourceID
	// Topics of the transport; they must fit Source.
	Topics wire.Topics
	// Transport to the agents. The hub runs it while it leads.
	Transport transport.Transport
	// Election chooses the leader among replicas.
	Election leader.Options
	// Controllers to run, by name, see [ChooseControllers]; nil for all.
	Controllers []string
	// AutoRegister makes a ManagedCluster for each cluster first heard from, and
	// AutoAccept accepts those. With AutoRegister no cluster gets works before it is
	// accepted. Both need the controller of clusters.
	AutoRegister, AutoAccept bool
	// Now tells the time that rollouts go by; nil for time.Now.
	Now func() time.Time
	// KeepAlive is that of the agents' connections to the broker; 0 for a minute.
	KeepAlive time.Duration
	// Workers is how many finalizers, and how many statuses, are written at a
	// time; 0 for 16.
	Workers int
	// Registerer gets the hub's metrics, workwire_hub_*, workwire_source_* and
	// workwire_queue_*; nil for none.
	Registerer prometheus.Registerer
	// Logger gets the hub's lines; those about a work have its name, cluster and
	// uid.
	Logger *slog.Logger
}

// NewElection gives the usual options of a hub's election: a fleet waits for its
// hub, so another replica takes over within 5 seconds of the end of its leader.
func NewElection(name string) leader.Options {
	o := leader.NewOptions(name)
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = 4*time.Second, 3*time.Second, 500*time.Millisecond
	return o
}

// Hub is one replica. Its methods may be called from any goroutine.
type Hub struct {
	cfg       Config
	informers *controller.Informers
	works     *works.Cache
	finalizer *finalizer.Controller
	delivery  *delivery.Engine
	fleet     fleet
	clusters  *clusters.Clusters // nil when it is disabled
	events    *events            // nil when no controller records any
	others    []component
	leading   atomic.Bool
}

// component is a controller that runs beside publishing.
type component struct {
	name  string
	run   func(context.Context) error
	ready func(context.Context) error // nil: always
}

// New makes a hub. It does no I/O and starts nothing. It reports every fault of
// cfg.
func New(cfg Config) (*Hub, error) {
	var required []error
	for _, field := range []struct {
		name    string
		missing bool
	}{{"REST", cfg.REST == nil}, {"Transport", cfg.Transport == nil}, {"Logger", cfg.Logger == nil}} {
		if field.missing {
			required = append(required, fmt.Errorf("%s is required", field.name))
		}
	}
	if cfg.Controllers == nil {
		cfg.Controllers = Controllers()
	}
	if _, err := ChooseControllers(cfg.Controllers); err != nil {
		required = append(required, err)
	}
	if cfg.AutoAccept && !cfg.AutoRegister {
		required = append(required, errors.New("AutoAccept accepts what AutoRegister registers: set both, or neither"))
	}
	if cfg.AutoRegister && !slices.Contains(cfg.Controllers, ControllerClusters) {
		required = append(required, fmt.Errorf("AutoRegister needs the controller %q", ControllerClusters))
	}
	faults := errors.Join(append(required, cfg.Election.Validate()...)...)
	topics, err := cfg.Topics.ForSource(cfg.Source)
	if err := errors.Join(faults, err); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{cfg: cfg, fleet: openFleet{}}
	if err := h.build(topics); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return h, nil
}

// build wires the parts up.
func (h *Hub) build(topics wire.SourceTopics) error {
	client, err := versioned.NewForConfig(h.cfg.REST)
	if err != nil {
		return fmt.Errorf("client of the Kubernetes API: %w", err)
	}
	addressable := func(cluster wire.ClusterName) bool {
		_, err := topics.Specs(cluster)
		return err == nil
	}
	var queues workqueue.MetricsProvider
	if queues, err = kube.NewQueueMetrics(h.cfg.Registerer); err != nil {
		return err
	}
	h.informers = controller.NewInformers(controller.InformersConfig{Client: client, Logger: h.cfg.Logger})
	h.works, err = works.New(works.Config{Informers: h.informers, Registerer: h.cfg.Registerer})
	if err != nil {
		return err
	}
	events, err := h.buildRecorder()
	if err != nil {
		return err
	}
	if err := h.buildClusters(client, events, queues); err != nil {
		return err
	}
	receiver, err := statusreceiver.New(statusreceiver.Config{
		Works: h.works, Client: client, Recorder: events, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	h.delivery, err = delivery.New(delivery.Config{
		Source: h.cfg.Source, Topics: h.cfg.Topics, Transport: h.cfg.Transport,
		Works:         workStore{Receiver: receiver, cache: h.works, addressable: addressable},
		StatusWorkers: h.cfg.Workers, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer,
		ClusterPaused:    func(cluster wire.ClusterName) bool { return !h.fleet.Accepted(cluster) },
		OnClusterMessage: h.fleet.MessageReceived, OnConnectionChange: h.fleet.ConnectionChanged,
	})
	if err != nil {
		return err
	}
	h.finalizer, err = finalizer.New(finalizer.Config{
		Works: h.works, Client: client, Publisher: h.delivery, Clusters: h.fleet, Addressable: addressable, Workers: h.cfg.Workers,
		Logger: h.cfg.Logger, Queues: queues, Registerer: h.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	if h.clusters != nil {
		h.clusters.Listen(clusterListener{Engine: h.delivery, finalizer: h.finalizer})
	}
	return h.buildOthers(client, events, queues)
}

// Run waits for leadership and works until ctx ends; it returns nil then, after
// everything it started has ended. It fails when leadership is lost or can not
// be had, see [leader.Run], and on what no retry can mend: an API server or a
// broker that can not be reached is waited for. Run must be called once.
func (h *Hub) Run(ctx context.Context) error {
	err := leader.Run(ctx, leader.Config{
		Options: h.cfg.Election, REST: h.cfg.REST, Logger: h.cfg.Logger, Leading: h.leading.Store,
	}, h.lead)
	if err != nil && (ctx.Err() == nil || errors.Is(err, leader.ErrLost)) {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// lead runs one term as leader; a Hub has only one.
func (h *Hub) lead(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	run := func(components ...func(context.Context) error) {
		for _, component := range components {
			group.Go(func() error { return component(ctx) })
		}
	}
	run(h.informers.Run)
	if h.clusters != nil {
		run(h.clusters.Run)
	}
	if h.events != nil {
		run(h.events.run)
	}
	if h.works.WaitForSync(ctx) && (h.clusters == nil || h.clusters.WaitForSync(ctx)) {
		h.cfg.Logger.Info("caches synced, connecting to the broker", "controllers", h.cfg.Controllers)
		run(h.finalizer.Run, h.delivery.Run)
		for _, c := range h.others {
			run(c.run)
		}
	}
	return group.Wait()
}

// Checks are the hub's conditions of readiness. A standby is ready: it can take
// over.
func (h *Hub) Checks() []serve.Check {
	checks := []serve.Check{
		{Name: "works", Func: func(ctx context.Context) error {
			if !h.leading.Load() {
				return nil
			}
			return h.works.Ready(ctx)
		}},
		{Name: "broker", Func: func(context.Context) error {
			if h.leading.Load() && !h.delivery.Connected() {
				return errors.New("not connected; the log says why")
			}
			return nil
		}},
	}
	others := h.others
	if h.clusters != nil {
		others = append(slices.Clone(others), component{name: ControllerClusters, ready: h.clusters.Ready})
	}
	for _, c := range others {
		if c.ready == nil {
			continue
		}
		checks = append(checks, serve.Check{Name: c.name, Func: func(ctx context.Context) error {
			if !h.leading.Load() {
				return nil
			}
			return c.ready(ctx)
		}})
	}
	return checks
}
