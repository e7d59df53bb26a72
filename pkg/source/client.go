package source

import (
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/audit"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/sealing"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config configures a [Client].
type Config struct {
	// SourceID is the id of the source: lower-case letters, digits and "-"; required. Two programs
	// must not run with the same id at the same time.
	SourceID wire.SourceID
	// Topics are the topics of the transport configuration; required. They must be valid for
	// SourceID.
	Topics wire.Topics
	// Transport connects to the broker; required. Run runs it.
	Transport transport.Transport

	// StateFile is the file that works and statuses are stored in. It is created if it does not
	// exist, and can be used by one source and one process at a time. Empty stores them in memory.
	StateFile string
	// Load returns the works that the source has at its start. It is called once, before the client
	// connects. The works must have a namespace, a name and a spec; other fields are treated as by
	// Create. Run returns its error. It cannot be combined with StateFile.
	Load func(ctx context.Context) ([]*workv1.ManifestWork, error)

	// Ephemeral: the works end with the store. Works that agents hold and the store does not have
	// are deleted. Without it, Run refuses to start on a store that was made new while agents still
	// hold works of an earlier one.
	Ephemeral bool

	// Sign signs every event, so that agents with the option --trusted-keys accept it; the method
	// Sign of a signing.Signer does (docs/protocol.md, Signatures). Optional.
	Sign func(*cloudevents.Event) error
	// Seal seals the specs of clusters that have a key, so that only their agents, with the option
	// --unseal-key, can read them (docs/protocol.md, Sealed data). It needs Sign. Optional.
	Seal *sealing.Sealer
	// Audit gets a record for each spec published and each status received; its method Run must be
	// called. Default: none.
	Audit *audit.Log

	// PublishWorkers is the maximum number of concurrent publishes: 1 to 1024, default 64.
	PublishWorkers int
	// RepublishAfter is how long a work may stay unconfirmed, while its cluster sends messages,
	// before it is published again. Default 30 s.
	RepublishAfter time.Duration
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
	store  *store

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
	c := &Client{config: config, ready: make(chan struct{}), ending: make(chan struct{}), watchers: make(map[*watcher]struct{})}
	c.store = newStore(generationBase(time.Now()))
	c.store.onChange = c.notifyEngine
	var err error
	c.engine, err = delivery.New(delivery.Config{
		Source:         config.SourceID,
		Topics:         config.Topics,
		Transport:      config.Transport,
		Works:          storeAdapter{c.store},
		PublishWorkers: config.PublishWorkers,
		RepublishAfter: config.RepublishAfter,
		Sign:           config.Sign,
		Seal:           config.Seal,
		Audit:          config.Audit,
		Logger:         config.Logger,
		Registerer:     config.Registerer,
		Identity:       func(context.Context) (string, error) { return c.store.identity, nil },
		Unknown: func(held wire.SpecVersion) delivery.UnknownAction {
			return decideUnknown(held, config.Ephemeral, c.store.since, c.store.confirmed.Load())
		},
	})
	if config.StateFile != "" && config.Load != nil {
		err = errors.Join(fmt.Errorf("source %q: StateFile and Load cannot be combined: set one of them", config.SourceID), err)
	}
	if err != nil {
		return nil, err
	}
	if config.StateFile == "" && config.Load == nil {
		close(c.ready)
	}
	c.topics, err = config.Topics.ForSource(config.SourceID)
	return c, err
}

// Run loads the works, connects, and delivers works and statuses until ctx ends. It returns nil
// then, after all goroutines that it started and all watches have ended. It returns an error if the
// state file, Load or the transport fails; a broker that cannot be reached is not an error. Run
// must be called once.
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
	err = c.engine.Run(ctx)
	if lost := (*delivery.UnknownWorksError)(nil); errors.As(err, &lost) {
		return fmt.Errorf("%w: start with the former state file, or with all works created again; or set Ephemeral to have them deleted", err)
	}
	return err
}

// decideUnknown decides about a work that an agent holds and the store does not have; since and
// confirmed are those of the store. Works of the store have generations above since. An agent
// without state lists works at generation 0, and, to see whether the source answers, a UID that is
// not of this package.
func decideUnknown(held wire.SpecVersion, ephemeral bool, since wire.Generation, confirmed bool) delivery.UnknownAction {
	uid, err := uuid.Parse(string(held.UID))
	switch {
	case held.Probe:
		return delivery.AnswerUnknown
	case ephemeral:
		return delivery.DeleteUnknown
	case held.Generation > since, since == 0, held.Generation == 0 && (err != nil || uid.Version() != 5):
		return delivery.AnswerUnknown
	case confirmed:
		return delivery.HoldUnknown
	default:
		return delivery.RefuseUnknown
	}
}

// load loads the store from StateFile or Load.
func (c *Client) load(ctx context.Context) error {
	switch {
	case c.config.StateFile != "":
		file, err := openStateFile(c.config.StateFile, c.config.SourceID, c.store.state.floor)
		if err != nil {
			return err
		}
		if err := c.store.restore(file); err != nil {
			return errors.Join(err, file.close())
		}
	case c.config.Load != nil:
		works, err := c.config.Load(ctx)
		if err != nil {
			return fmt.Errorf("load works: %w", err)
		}
		for _, work := range works {
			if _, err := c.create(work.Namespace, work, false); err != nil {
				return fmt.Errorf("load work %s/%s: %w", work.Namespace, work.Name, err)
			}
		}
		c.store.markNew()
	default:
		c.store.identity = uuid.NewString()
		c.store.markNew()
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
	return c.store.close()
}

// ManifestWorks returns a client for the works of a cluster, or for those of all clusters if
// namespace is empty. With a StateFile or Load, its calls wait until Run has loaded the works, or
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

// notifyEngine tells the engine about a change of the store.
func (c *Client) notifyEngine(ch change) {
	switch {
	case ch.removed:
		c.engine.WorkRemoved(ch.new.work)
	case !ch.statusOnly:
		c.engine.WorkChanged(ch.new.work.UID)
	}
}

// generationBase returns the minimum generation of a new work: the seconds since the start of 2025.
func generationBase(now time.Time) wire.Generation {
	const start = 1735689600 // 2025-01-01T00:00:00Z
	return wire.Generation(max(now.Unix()-start, 0))
}
