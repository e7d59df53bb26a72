package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/source/instances"
	"github.com/workwire/workwire/pkg/source/store"
	"github.com/workwire/workwire/pkg/source/store/file"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config configures a [Client].
type Config struct {
	// SourceID is the id of the source: lower-case letters, digits and "-"; required. Two programs
	// must not run with the same id at the same time, unless they share a Store.
	SourceID wire.SourceID
	// Topics are the topics of the transport configuration; required. They must be valid for
	// SourceID.
	Topics wire.Topics
	// Transport connects to the broker; required. Run runs it.
	Transport transport.Transport

	// Store keeps works and statuses: store/file or store/postgres. Run opens and closes
	// it. With a [store.Shared], several clients of one source may run at the same time: all of them
	// read and write works, and one publishes. Default: in memory only.
	Store store.Store
	// StateFile is short for a Store in this file (store/file). It is created if it does not exist,
	// and can be used by one source and one process at a time. It cannot be combined with Store.
	StateFile string
	// Load returns the works that the source has at its start. It is called once, before the client
	// connects. The works must have a namespace, a name and a spec; other fields are treated as by
	// Create. Run returns its error. It cannot be combined with Store or StateFile.
	Load func(ctx context.Context) ([]*workv1.ManifestWork, error)

	// Ephemeral: the works end with the store. Works that agents hold and the store does not have
	// are deleted. Without it, those of a store before this one are left alone, with an error in the log.
	Ephemeral bool

	// Sign signs every event, so that agents with the option --trusted-keys accept it; the method
	// Sign of a signing.Signer does (docs/protocol.md, Signatures). Optional.
	Sign func(*cloudevents.Event) error
	// Seal seals the specs of clusters that have a key, so that only their agents, with the option
	// --unseal-key, can read them (docs/protocol.md, Sealed data). It needs Sign. Optional.
	Seal *sealing.Sealer
	// TrustedAgents are the keys that agents, with the option --signing-key, sign their statuses with: of
	// others, nothing counts (docs/signing.md). Default: all statuses are believed.
	TrustedAgents *signing.TrustedAgents
	// SignatureMaxAge is how old the signature of a status may be, and how far ahead of this clock.
	// Negative: no limit; default 1 h.
	SignatureMaxAge time.Duration
	// Audit gets a record for each spec published and each status received; its method Run must be
	// called. Default: none.
	Audit *audit.Log

	// PublishWorkers is the maximum number of concurrent publishes: 1 to 1024, default 64.
	PublishWorkers int
	// RepublishAfter is how long a work may stay unconfirmed, while its cluster sends messages,
	// before it is published again. Default 30 s.
	RepublishAfter time.Duration
	// TracerProvider makes the spans of changes (docs/tracing.md). A change that is made with a context
	// that has a span continues its trace. nil makes none.
	TracerProvider trace.TracerProvider
	// OnOtherInstances is called with the other programs that publish under SourceID, when one is
	// noticed or no longer heard. It must not block. Optional; each is logged as an error anyway.
	OnOtherInstances func(others []instances.Other)
	// InstanceInterval is how often this program announces itself to others under the same SourceID.
	// Another one is noticed after about this time. Default 30 s.
	InstanceInterval time.Duration
	// Logger receives the logs; default slog.Default().
	Logger *slog.Logger
	// Registerer registers the metrics workwire_source_*; nil registers none.
	Registerer prometheus.Registerer
}

// Client is a source of ManifestWorks. All methods are safe for concurrent use.
type Client struct {
	config Config
	topics wire.SourceTopics
	engine *delivery.Engine
	memory *memory
	// clusters learns of messages and of the connection by observe.
	clusters *Clusters
	// publishing: this client delivers works. lease is set before it, if the store is shared.
	publishing atomic.Bool
	lease      store.Lease

	started  atomic.Bool
	ready    chan struct{} // closed when the store is loaded
	ending   chan struct{} // closed when Run ends
	mu       sync.Mutex
	ended    bool                  // guarded by mu; new watches are refused
	watchers map[*watcher]struct{} // guarded by mu
	watching sync.WaitGroup        // Go is called under mu while not ended
}

var _ workclient.ManifestWorksGetter = (*Client)(nil)

// New returns a Client. It does no I/O and starts nothing. Its error names every invalid field of
// config.
func New(config Config) (*Client, error) {
	c := &Client{config: config, ready: make(chan struct{}), ending: make(chan struct{}), watchers: make(map[*watcher]struct{}), clusters: newClusters()}
	c.memory = newMemory(generationBase(time.Now()))
	c.memory.onChange = c.notifyEngine
	c.config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.StateFile != "" && config.Store == nil {
		c.config.Store = file.New(config.StateFile)
	}
	var beforePublish func(context.Context) error
	if _, shared := config.Store.(store.Shared); shared {
		beforePublish = func(ctx context.Context) error { return c.lease.Wait(ctx) }
	}
	var err error
	c.engine, err = delivery.New(delivery.Config{
		Source:         config.SourceID,
		Topics:         config.Topics,
		Transport:      config.Transport,
		BeforePublish:  beforePublish,
		Works:          storeAdapter{c.memory, config.Ephemeral},
		PublishWorkers: config.PublishWorkers,
		RepublishAfter: config.RepublishAfter,
		Sign:           config.Sign,
		Seal:           config.Seal,
		Audit:          config.Audit,
		TracerProvider: config.TracerProvider,
		Logger:         config.Logger,
		Registerer:     config.Registerer,

		TrustedAgents:   config.TrustedAgents,
		SignatureMaxAge: config.SignatureMaxAge,

		Identity:         func(context.Context) (string, error) { return c.memory.identity, nil },
		Observe:          c.observe,
		InstanceInterval: config.InstanceInterval,
	})
	if config.StateFile != "" && config.Load != nil || config.Store != nil && (config.StateFile != "" || config.Load != nil) {
		err = errors.Join(fmt.Errorf("source %q: Store, StateFile and Load cannot be combined: set one of them", config.SourceID), err)
	}
	if err != nil {
		return nil, err
	}
	if c.config.Store == nil && config.Load == nil {
		close(c.ready)
	}
	c.topics, err = config.Topics.ForSource(config.SourceID)
	return c, err
}

// Run loads the works, connects, and delivers works and statuses until ctx ends. It returns nil
// then, after all goroutines that it started and all watches have ended. It returns an error if the
// store, Load or the transport fails; a broker that cannot be reached is not an error. With a shared
// store, Run waits until no other client publishes, then publishes itself; it returns an error that
// wraps [store.ErrLeaseLost] if another client has to do so since, and the program should start
// again. Run must be called once.
func (c *Client) Run(ctx context.Context) (err error) {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("source %q: Run must be called once", c.config.SourceID)
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("source %q: %w", c.config.SourceID, err)
	}
	return c.deliver(ctx)
}

// decideUnknown decides about a work that an agent holds and the store does not have. Works of the store have generations
// above since. One of an earlier store is a matter between its cluster and this source, which goes on for all others. An agent
// without state lists works at generation 0, and, to see whether the source answers, a UID that is
// not of this package.
func decideUnknown(held wire.SpecVersion, ephemeral bool, since wire.Generation) delivery.UnknownAction {
	uid, err := uuid.Parse(string(held.UID))
	switch {
	case held.Probe:
		return delivery.AnswerUnknown
	case ephemeral:
		return delivery.DeleteUnknown
	case held.Generation > since, since == 0, held.Generation == 0 && (err != nil || uid.Version() != 5):
		return delivery.AnswerUnknown
	default:
		return delivery.HoldUnknown
	}
}

// load loads the works from the Store or with Load.
func (c *Client) load(ctx context.Context) error {
	switch {
	case c.config.Store != nil:
		initial := store.Header{
			Identity: uuid.NewString(), Since: c.memory.content.floor, Floor: c.memory.content.floor, Version: versionBase(time.Now()),
		}
		if err := openWriter(ctx, c.memory, c.config.Store, c.config.SourceID, initial, c.config.Logger); err != nil {
			return err
		}
	case c.config.Load != nil:
		works, err := c.config.Load(ctx)
		if err != nil {
			return fmt.Errorf("load works: %w", err)
		}
		for _, work := range works {
			if _, err := c.create(ctx, work.Namespace, work, false); err != nil {
				return fmt.Errorf("load work %s/%s: %w", work.Namespace, work.Name, err)
			}
		}
		c.memory.markNew()
	default:
		c.memory.identity = uuid.NewString()
		c.memory.markNew()
		return nil
	}
	close(c.ready)
	return nil
}

// end ends watches and closes the store.
func (c *Client) end() error {
	c.mu.Lock()
	c.ended = true
	for w := range c.watchers {
		w.cancel()
	}
	c.mu.Unlock()
	close(c.ending)
	c.watching.Wait()
	return c.memory.close()
}

// ManifestWorks returns a client for the works of a cluster, or for those of all clusters if
// namespace is empty. With a Store or Load, its calls wait until Run has loaded the works, or
// until their context ends. After Run, they fail with ServiceUnavailable.
func (c *Client) ManifestWorks(namespace string) workclient.ManifestWorkInterface {
	return &manifestWorks{client: c, namespace: namespace}
}

// Connected reports whether the client is connected to the broker.
func (c *Client) Connected() bool { return c.engine.Connected() }

// waitReady waits until the store can be used.
func (c *Client) waitReady(ctx context.Context) error {
	select {
	case <-c.ready:
	case <-c.ending:
	case <-ctx.Done():
		return fmt.Errorf("source %q: wait for Run to load the works: %w", c.config.SourceID, ctx.Err())
	}
	select {
	case <-c.ending:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("source %q: Run has ended", c.config.SourceID))
	default:
		return ctx.Err()
	}
}

// observe passes on what the engine notices.
func (c *Client) observe(event delivery.Event) {
	switch event := event.(type) {
	case delivery.ClusterHeard:
		c.clusters.heard(event.Cluster, event.Presence)
	case delivery.ConnectionChanged:
		c.clusters.connectionChanged(event.Up)
	case delivery.InstancesChanged:
		if c.config.OnOtherInstances != nil {
			c.config.OnOtherInstances(event.Others)
		}
	}
}

// notifyEngine tells the engine about a change of the store.
func (c *Client) notifyEngine(ch change) {
	switch {
	case !c.publishing.Load():
	case ch.removed:
		c.engine.WorkRemoved(ch.new.work)
	case !ch.statusOnly:
		c.engine.WorkChangedBy(ch.new.work.UID, ch.cause)
	}
}

// versionBase returns the minimum resourceVersion of a store that is opened: the microseconds since the
// start of 2025. So a store that was restored from a backup does not repeat versions.
func versionBase(now time.Time) int64 { return max(now.UnixMicro()-startOf2025*1_000_000, 0) }

const startOf2025 = 1735689600 // 2025-01-01T00:00:00Z

// generationBase returns the minimum generation of a new work: the seconds since the start of 2025.
func generationBase(now time.Time) wire.Generation {
	return wire.Generation(max(now.Unix()-startOf2025, 0))
}
