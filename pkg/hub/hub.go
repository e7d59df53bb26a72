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
// publish, from there to the link; intake, from the link to the API server. The
// link (package source/link) speaks the protocol and knows what agents know.
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
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/intake"
	"github.com/workwire/workwire/pkg/hub/publish"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/serve"
	"github.com/workwire/workwire/pkg/source/link"
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

// Hub is one replica. Its methods may be called from any goroutine.
type Hub struct {
	cfg       Config
	works     *works.Cache
	publisher *publish.Publisher
	link      *link.Link
	leading   atomic.Bool
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
	faults := errors.Join(append(required, cfg.Election.Validate()...)...)
	topics, err := cfg.Topics.ForSource(cfg.Source)
	if err := errors.Join(faults, err); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	h := &Hub{cfg: cfg}
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
	h.works, err = works.New(works.Config{Client: client, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer})
	if err != nil {
		return err
	}
	in, err := intake.New(intake.Config{
		Works: h.works, Client: client, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	h.link, err = link.New(link.Config{
		Source: h.cfg.Source, Topics: h.cfg.Topics, Transport: h.cfg.Transport,
		Works:          shown{intake: in, cache: h.works, addressable: addressable},
		IntakeParallel: h.cfg.Workers, Logger: h.cfg.Logger, Registerer: h.cfg.Registerer,
	})
	if err != nil {
		return err
	}
	h.publisher, err = publish.New(publish.Config{
		Works: h.works, Client: client, Link: h.link, Addressable: addressable, Workers: h.cfg.Workers,
		Logger: h.cfg.Logger, Queues: queues, Registerer: h.cfg.Registerer,
	})
	return err
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

// lead is a term as leader, of which a Hub has one.
func (h *Hub) lead(ctx context.Context) error {
	return together(ctx,
		func(ctx context.Context) error { h.works.Run(ctx); return nil },
		func(ctx context.Context) error {
			if !h.works.WaitForSync(ctx) {
				return nil
			}
			h.cfg.Logger.Info("the ManifestWorks are read; connecting to the broker")
			return together(ctx, h.publisher.Run, h.link.Run)
		})
}

// together runs parts until all have returned. The context of all ends when one
// returns before ctx has ended, or fails. The error is that of the first to fail.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(parts))
	for _, part := range parts {
		go func() { results <- part(ctx) }()
	}
	var first error
	for range parts {
		if err := <-results; err != nil && first == nil {
			first = err
		}
		cancel()
	}
	return first
}

// Checks are the hub's conditions of readiness. A standby is ready: it can take
// over.
func (h *Hub) Checks() []serve.Check {
	return []serve.Check{
		{Name: "works", Func: func(ctx context.Context) error {
			if !h.leading.Load() {
				return nil
			}
			return h.works.Ready(ctx)
		}},
		{Name: "broker", Func: func(context.Context) error {
			if h.leading.Load() && !h.link.Connected() {
				return errors.New("not connected; the log says why")
			}
			return nil
		}},
	}
}
