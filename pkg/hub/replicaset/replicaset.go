package replicaset

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/works"
)

// DefaultWorkers is what the zero value of Config.Workers stands for.
const DefaultWorkers = 16

// How many sets are looked at at a time, and the bounds of the pauses.
const (
	passes       = 4
	pause        = 200 * time.Millisecond // between the beginnings of two passes over a set
	passAgain    = 10 * time.Millisecond  // after a failed pass
	passAgainMax = 30 * time.Second
)

// Config is what a [Controller] is made of. All fields but those said to be
// optional are required.
type Config struct {
	// Works holds the works. It must be running, and hold all of them.
	Works *works.Cache
	// Client reads sets, placements, their decisions and clusters, and writes works
	// and sets.
	Client versioned.Interface
	// Recorder gets events about sets; nil for none.
	Recorder record.EventRecorder
	// Now tells the time that rollouts go by; nil for time.Now.
	Now func() time.Time
	// Logger gets a line about each failure, and each rollout that is complete or
	// stopped.
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_replicaset_*; nil for none.
	Registerer prometheus.Registerer
	// Queues gives the queue its metrics; nil for none.
	Queues workqueue.MetricsProvider
	// Workers is how many works are written at a time; 0 for 16.
	Workers int
}

// Controller keeps the sets of all namespaces.
type Controller struct {
	cfg     Config
	source  *source
	metrics *metrics
	queue   workqueue.TypedRateLimitingInterface[types.NamespacedName]
	slots   chan struct{} // one for each work that is being written

	mu       sync.Mutex
	begun    map[types.NamespacedName]time.Time // guarded by mu: when the last pass began
	memories map[types.NamespacedName]*memory   // guarded by mu; each memory belongs to the pass over its set
}

// New makes a controller. It does no I/O. It fails when the metrics are
// registered already.
func New(cfg Config) (*Controller, error) {
	switch {
	case cfg.Works == nil, cfg.Client == nil, cfg.Logger == nil:
		return nil, errors.New("replicaset: Works, Client and Logger are required")
	case cfg.Workers < 0:
		return nil, fmt.Errorf("replicaset: %d workers: want at least 1, or 0 for %d", cfg.Workers, DefaultWorkers)
	case cfg.Workers == 0:
		cfg.Workers = DefaultWorkers
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Controller{
		cfg: cfg, metrics: newMetrics(), slots: make(chan struct{}, cfg.Workers),
		begun: make(map[types.NamespacedName]time.Time), memories: make(map[types.NamespacedName]*memory),
	}
	var err error
	if c.source, err = newSource(cfg.Client, cfg.Logger); err != nil {
		return nil, fmt.Errorf("replicaset: %w", err)
	}
	if cfg.Registerer != nil {
		if err := c.metrics.register(cfg.Registerer); err != nil {
			return nil, fmt.Errorf("replicaset: %w", err)
		}
	}
	return c, nil
}

// Run works until ctx ends; it returns nil then, after everything it started has
// ended. An API server that can not be reached, or does not serve what is needed,
// is tried again for ever. It must be called once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](passAgain, passAgainMax),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: "replicasets", MetricsProvider: c.cfg.Queues})
	defer c.queue.ShutDown()
	stop, err := c.watch()
	if err != nil {
		return err
	}
	defer stop()
	var group sync.WaitGroup
	defer group.Wait()
	c.source.start(ctx, &group)
	if !c.source.wait(ctx) || !c.cfg.Works.WaitForSync(ctx) {
		return nil
	}
	for range passes {
		group.Go(func() { c.work(ctx) })
	}
	<-ctx.Done()
	c.queue.ShutDown()
	return nil
}

// Ready tells why the controller does not work yet; nil once it does.
func (c *Controller) Ready(context.Context) error { return c.source.ready() }

// changed asks for a pass over a set: at once, or a pause after the last one
// began.
func (c *Controller) changed(set types.NamespacedName) {
	c.mu.Lock()
	begun, ok := c.begun[set]
	c.mu.Unlock()
	if !ok {
		c.queue.Add(set)
		return
	}
	c.queue.AddAfter(set, pause-time.Since(begun))
}

func (c *Controller) work(ctx context.Context) {
	for {
		set, stopped := c.queue.Get()
		if stopped {
			return
		}
		m, wait := c.begin(set)
		if m == nil {
			c.queue.AddAfter(set, wait)
			c.queue.Done(set)
			continue
		}
		if err := c.pass(ctx, set, m); err != nil && ctx.Err() == nil {
			c.cfg.Logger.Warn("a ManifestWorkReplicaSet can not be kept; trying again", "set", set.Name, "namespace", set.Namespace, "error", err)
			c.queue.AddRateLimited(set)
		} else {
			c.queue.Forget(set)
		}
		c.queue.Done(set)
	}
}

// begin notes that a pass over the set begins, and gives what is kept of it; nil
// when it is too early for one, and how long to wait.
func (c *Controller) begin(set types.NamespacedName) (m *memory, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun, ok := c.begun[set]; ok && time.Since(begun) < pause {
		return nil, pause - time.Since(begun)
	}
	c.begun[set] = time.Now()
	if c.memories[set] == nil {
		c.memories[set] = newMemory()
	}
	return c.memories[set], 0
}

// forget drops what is known of a set that is gone.
func (c *Controller) forget(set types.NamespacedName, m *memory) {
	c.metrics.stand(&m.counted, standing{})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.begun, set)
	delete(c.memories, set)
}
