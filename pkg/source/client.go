package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config says how a [Client] works.
type Config struct {
	// SourceID is the id of the source: lower-case letters, digits and "-";
	// required. No two programs may run under one id at the same time.
	SourceID wire.SourceID
	// Topics of the configuration; required, and they must fit SourceID.
	Topics wire.Topics
	// Transport to speak over; required. The client runs it.
	Transport transport.Transport

	// StateFile is the file in which works and statuses are kept, made if it does
	// not exist. It belongs to one source and one process at a time. Empty keeps
	// them in memory.
	StateFile string
	// Load gives the works that the source has at its start, and is called once,
	// before the client connects. It excludes StateFile. The works need a
	// namespace, a name and a spec; the rest is as with Create. An error ends Run.
	Load func(ctx context.Context) ([]*workv1.ManifestWork, error)

	// PublishWorkers is the maximum number of concurrent publishes: 1 to 1024,
	// default 64.
	PublishWorkers int
	// RepublishAfter is how long a work may stay unconfirmed, while its cluster sends
	// messages, before it is published again. Default 30 s.
	RepublishAfter time.Duration
	// Logger gets structured logs. Nil is slog.Default.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_source_*; nil for none.
	Registerer prometheus.Registerer
}

// Client is a source. All methods may be called at the same time from any
// goroutine.
type Client struct {
	config Config
	topics wire.SourceTopics
	engine *delivery.Engine
	store  *store

	started  atomic.Bool
	ready    chan struct{} // closed when the store holds what the source has
	ending   chan struct{} // closed when Run ends
	mu       sync.Mutex
	ended    bool           // guarded by mu; no watch begins any more
	watching sync.WaitGroup // watches; Add under mu while not ended
}

var _ workclient.ManifestWorksGetter = (*Client)(nil)

// New makes a client. It does no I/O and starts nothing. It fails on a faulty
// Config, naming every fault.
func New(config Config) (*Client, error) {
	if config.StateFile != "" && config.Load != nil {
		return nil, fmt.Errorf("source %q: StateFile and Load exclude each other: the file holds the works already", config.SourceID)
	}
	c := &Client{config: config, ready: make(chan struct{}), ending: make(chan struct{})}
	c.store = newStore(generationBase(time.Now()))
	var err error
	c.engine, err = delivery.New(delivery.Config{
		Source:         config.SourceID,
		Topics:         config.Topics,
		Transport:      config.Transport,
		Works:          storeAdapter{c.store},
		PublishWorkers: config.PublishWorkers,
		RepublishAfter: config.RepublishAfter,
		Logger:         config.Logger,
		Registerer:     config.Registerer,
	})
	if err != nil {
		return nil, err
	}
	if c.topics, err = config.Topics.ForSource(config.SourceID); err != nil {
		return nil, err
	}
	c.store.published = c.notifyEngine
	if config.StateFile == "" && config.Load == nil {
		close(c.ready)
	}
	return c, nil
}

// Run reads what the source has, connects, and keeps works and statuses up to
// date until ctx ends; it returns nil then, after everything it started and every
// watch has ended. It fails when the state file or Load does, and when the
// transport can not be used at all; a broker that can not be reached is waited
// for. It must be called once.
func (c *Client) Run(ctx context.Context) (err error) {
	if !c.started.CompareAndSwap(false, true) {
		return fmt.Errorf("source %q: Run was called before", c.config.SourceID)
	}
	defer func() { err = errors.Join(err, c.end()) }()
	if err := c.load(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("source %q: %w", c.config.SourceID, err)
	}
	return c.engine.Run(ctx)
}

// load fills the store from StateFile or Load.
func (c *Client) load(ctx context.Context) error {
	switch {
	case c.config.StateFile != "":
		file, err := openStateFile(c.config.StateFile, c.config.SourceID)
		if err != nil {
			return err
		}
		if err := c.store.restore(file); err != nil {
			return errors.Join(err, file.close())
		}
	case c.config.Load != nil:
		works, err := c.config.Load(ctx)
		if err != nil {
			return fmt.Errorf("load the works: %w", err)
		}
		for _, work := range works {
			if _, err := c.create(work.Namespace, work, false); err != nil {
				return fmt.Errorf("load work %s/%s: %w", work.Namespace, work.Name, err)
			}
		}
	default:
		return nil
	}
	close(c.ready)
	return nil
}

// end ends watches and closes the store.
func (c *Client) end() error {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	close(c.ending)
	c.watching.Wait()
	return c.store.close()
}

// ManifestWorks gives access to the works of a cluster, or with an empty
// namespace to those of all of them. With a StateFile or Load, calls wait until
// Run has read it, or until their context ends. After Run, they fail with
// ServiceUnavailable.
func (c *Client) ManifestWorks(namespace string) workclient.ManifestWorkInterface {
	return &manifestWorks{client: c, namespace: namespace}
}

// Connected reports whether there is a connection to the broker.
func (c *Client) Connected() bool { return c.engine.Connected() }

// begin waits until the store can be used.
func (c *Client) begin(ctx context.Context) error {
	select {
	case <-c.ready:
	case <-c.ending:
	case <-ctx.Done():
		return fmt.Errorf("source %q: waiting for Run to read what the source has: %w", c.config.SourceID, ctx.Err())
	}
	select {
	case <-c.ending:
		return apierrors.NewServiceUnavailable(fmt.Sprintf("source %q: Run has ended", c.config.SourceID))
	default:
		return ctx.Err()
	}
}

// tell passes a change of the store on to the link.
func (c *Client) notifyEngine(ch change) {
	switch {
	case ch.gone:
		c.engine.WorkRemoved(ch.new.work)
	case !ch.statusOnly:
		c.engine.WorkChanged(ch.new.work.UID)
	}
}

// generationBase is the least generation that a new work has at a time: seconds
// since the start of 2025.
func generationBase(now time.Time) wire.Generation {
	const start = 1735689600 // 2025-01-01T00:00:00Z
	return wire.Generation(max(now.Unix()-start, 0))
}
