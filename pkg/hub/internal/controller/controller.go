package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/required"
)

// Defaults of [Config].
const (
	DefaultWorkers    = 4
	DefaultBackoff    = 5 * time.Millisecond
	DefaultMaxBackoff = 30 * time.Second
)

// Config configures a [Controller].
type Config[K comparable] struct {
	// Name of the controller, in logs and as the label "queue" of its metrics; required.
	Name string
	// Reconcile brings one key to its desired state; required. It is called for one key at a time
	// by one worker. A positive requeueAfter calls it again after that time. An error calls it
	// again after a backoff; requeueAfter is ignored then.
	Reconcile func(ctx context.Context, key K) (requeueAfter time.Duration, err error)
	// Watches are the caches to wait for before the first call of Reconcile, with the handlers that
	// add keys; see [On].
	Watches []Watch
	// First are keys that are reconciled at the start, besides those that the handlers add.
	First []K
	// Workers is the number of keys that are reconciled at a time; default 4.
	Workers int
	// Interval is the minimum time between the starts of two reconciles of one key, see
	// [Controller.Spent]; default none.
	Interval time.Duration
	// Backoff is the pause after a first error; it doubles up to MaxBackoff. Default 5ms and 30s.
	Backoff, MaxBackoff time.Duration
	// Queues creates the metrics of the queue; default none.
	Queues workqueue.MetricsProvider
	// Logger gets a line about each failed reconcile; default slog.Default().
	Logger *slog.Logger
}

// Controller reconciles keys of type K from a rate-limited queue. Its methods are safe for
// concurrent use.
type Controller[K comparable] struct {
	cfg      Config[K]
	log      *slog.Logger
	queue    atomic.Pointer[workqueue.TypedRateLimitingInterface[K]] // nil before Run
	throttle throttle[K]
	synced   chan struct{} // closed when all watches have synced
}

// New returns a controller. It starts nothing. It reports every fault of cfg.
func New[K comparable](cfg Config[K]) (*Controller[K], error) {
	errs := []error{required.Fields(cfg, "Name", "Reconcile")}
	cfg.Backoff, cfg.MaxBackoff = cmp.Or(cfg.Backoff, DefaultBackoff), cmp.Or(cfg.MaxBackoff, DefaultMaxBackoff)
	if cfg.Interval < 0 || cfg.Backoff < 0 || cfg.MaxBackoff < cfg.Backoff {
		errs = append(errs, fmt.Errorf("want 0 <= Interval and 0 < Backoff <= MaxBackoff, got %s, %s and %s",
			cfg.Interval, cfg.Backoff, cfg.MaxBackoff))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("controller %q: %w", cfg.Name, err)
	}
	cfg.Workers = cmp.Or(cfg.Workers, DefaultWorkers)
	return &Controller[K]{
		cfg: cfg, log: cmp.Or(cfg.Logger, slog.Default()).With("controller", cfg.Name),
		throttle: throttle[K]{interval: cfg.Interval, earliest: make(map[K]time.Time)}, synced: make(chan struct{}),
	}, nil
}

// Add queues key, to be reconciled as soon as a worker is free and the interval has passed. A key
// that is queued already is not added again. Before [Controller.Run], Add does nothing: the
// handlers of Watches are called for every object first.
func (c *Controller[K]) Add(key K) { c.AddAfter(key, 0) }

// AddAfter is [Controller.Add] after a time.
func (c *Controller[K]) AddAfter(key K, after time.Duration) {
	if queue := c.queue.Load(); queue != nil {
		(*queue).AddAfter(key, max(after, c.throttle.remaining(key, time.Now())))
	}
}

// Spent notes that a reconcile of key has used cost of CPU time for a decision about many objects, besides what
// it waited for. It may be called by Reconcile, if there is an Interval. Reconciles then come so much later
// that such decisions of all keys take a quarter of a CPU: each follows every change, but many changes share
// one. A key whose decisions are cheap is not delayed by others, and none by more than ten seconds.
func (c *Controller[K]) Spent(key K, cost time.Duration) { c.throttle.spent(key, cost, time.Now()) }

// Run reconciles until ctx ends; it returns nil then, when everything that it started has ended.
// The informers of Watches must be run by the caller; they are waited for. Run must be called once.
func (c *Controller[K]) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[K](c.cfg.Backoff, c.cfg.MaxBackoff),
		workqueue.TypedRateLimitingQueueConfig[K]{Name: c.cfg.Name, MetricsProvider: c.cfg.Queues})
	var workers sync.WaitGroup
	defer workers.Wait()
	defer queue.ShutDown()
	c.queue.Store(&queue)
	err := Follow(ctx, func() {
		close(c.synced)
		for _, key := range c.cfg.First {
			queue.Add(key)
		}
		c.log.Debug("caches synced, starting workers", "workers", c.cfg.Workers)
		for range c.cfg.Workers {
			workers.Go(func() {
				for {
					key, shutdown := queue.Get()
					if shutdown {
						return
					}
					c.reconcile(ctx, queue, key)
					queue.Done(key)
				}
			})
		}
	}, c.cfg.Watches...)
	if err != nil {
		return fmt.Errorf("controller %s: %w", c.cfg.Name, err)
	}
	return nil
}

// reconcile calls Reconcile for a key and decides when to call it again.
func (c *Controller[K]) reconcile(ctx context.Context, queue workqueue.TypedRateLimitingInterface[K], key K) {
	if ctx.Err() != nil {
		return
	}
	if remaining := c.throttle.start(key, time.Now()); remaining > 0 {
		queue.AddAfter(key, remaining)
		return
	}
	requeueAfter, err := c.cfg.Reconcile(ctx, key)
	switch {
	case ctx.Err() != nil:
		queue.Forget(key)
	case err == nil:
		queue.Forget(key)
		if requeueAfter > 0 {
			queue.AddAfter(key, requeueAfter)
		}
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		c.log.Debug("reconcile failed, not retrying: the namespace is being deleted", "key", key, "error", err)
		queue.Forget(key)
	case apierrors.IsConflict(err):
		c.log.Debug("reconcile met a newer object, retrying", "key", key, "error", err)
		queue.AddRateLimited(key)
	default:
		c.log.Warn("reconcile failed, retrying", "key", key, "error", err)
		queue.AddRateLimited(key)
	}
}

// WaitForSync waits until all watches have delivered every object to their handlers, and reports
// false when ctx ended before.
func (c *Controller[K]) WaitForSync(ctx context.Context) bool { return waitFor(ctx, c.synced) }

// HasSynced reports whether [Controller.WaitForSync] would return at once.
func (c *Controller[K]) HasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// Ready returns why the controller does not reconcile yet; nil once it does.
func (c *Controller[K]) Ready(ctx context.Context) error {
	if c.HasSynced() {
		return nil
	}
	for _, watch := range c.cfg.Watches {
		if err := watch.ready(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("controller %s has not started yet", c.cfg.Name)
}

// Watch is a cache that a controller waits for, and what it does with the cache's events.
type Watch struct {
	start func() (synced <-chan struct{}, stop func(), err error)
	ready func(context.Context) error
}

// On watches c. changed is called as for [Cache.AddEventHandler], from [Controller.Run] on; nil
// only waits for the cache.
func On[T Object](c *Cache[T], changed func(before, after T)) Watch {
	return Watch{ready: c.Ready, start: func() (<-chan struct{}, func(), error) {
		if changed == nil {
			return c.informer.HasSyncedChecker().Done(), func() {}, nil
		}
		registration, err := c.AddEventHandler(changed)
		if err != nil {
			return nil, nil, fmt.Errorf("watch %s: %w", c.resource, err)
		}
		return registration.HasSyncedChecker().Done(), func() { c.RemoveEventHandler(registration) }, nil
	}}
}

// OnInformer watches an informer that is no [Cache], and that the caller runs. handler may be nil; unread
// returns what [Controller.Ready] does until all objects have been read.
func OnInformer(informer cache.SharedInformer, handler cache.ResourceEventHandler, unread func() error) Watch {
	ready := func(context.Context) error {
		if informer.HasSynced() {
			return nil
		}
		return unread()
	}
	return Watch{ready: ready, start: func() (<-chan struct{}, func(), error) {
		if handler == nil {
			return informer.HasSyncedChecker().Done(), func() {}, nil
		}
		registration, err := informer.AddEventHandler(handler)
		if err != nil {
			return nil, nil, err
		}
		return registration.HasSyncedChecker().Done(), func() { _ = informer.RemoveEventHandler(registration) }, nil
	}}
}

// Follow has the handlers of watches called until ctx ends; it returns nil then. It calls synced once they have seen every object.
func Follow(ctx context.Context, synced func(), watches ...Watch) error {
	var all []<-chan struct{}
	for _, watch := range watches {
		done, stop, err := watch.start()
		if err != nil {
			return err
		}
		defer stop()
		all = append(all, done)
	}
	for _, done := range all {
		if !waitFor(ctx, done) {
			return nil
		}
	}
	synced()
	<-ctx.Done()
	return nil
}
