package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// ErrLost is wrapped by the error of [Run] when leadership was lost: another replica took the
// Lease, or it could not be renewed in time.
var ErrLost = errors.New("leadership lost")

// Config configures [Run].
type Config struct {
	// Options choose the Lease; required.
	Options Options
	// REST is how to reach the API server that holds the Lease; required unless Options.Disabled.
	// Requests about the Lease use a client of their own, without QPS, Burst and RateLimiter, so
	// that they do not wait for those of the work.
	REST *rest.Config
	// Leading is called with true when leadership begins, and with false when the work has ended.
	// It must not block. Optional.
	Leading func(bool)
	// Term is called with the term that begins, before Leading and before the work starts. It must
	// not block. It is not called if Options.Disabled. Optional.
	Term func(Term)
	// Standby is called with the identity of the leader while this replica waits, whenever it is another
	// one. It must not block. Optional.
	Standby func(holder string)
	// Logger gets a line about each change of leadership and each failure; default slog.Default().
	Logger *slog.Logger
}

// Run waits until this replica leads, runs work, and releases the Lease when work has returned. The
// context of work ends with ctx and when leadership is lost. work must return then: another replica
// may start after LeaseDuration less RenewDeadline.
//
// Run returns work's error; nil when ctx ended before this replica led; an error that wraps
// [ErrLost]; or the reason why the Lease cannot be acquired, such as missing rights, if that lasts
// for RenewDeadline. It retries forever while the API server cannot be reached. When Run returns,
// work has returned.
func Run(ctx context.Context, cfg Config, work func(context.Context) error) error {
	errs := cfg.Options.Validate()
	if cfg.REST == nil && !cfg.Options.Disabled {
		errs = append(errs, errors.New("leader election: REST is required"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if cfg.Leading == nil {
		cfg.Leading = func(bool) {}
	}
	if cfg.Options.Disabled {
		cfg.Leading(true)
		defer cfg.Leading(false)
		return work(ctx)
	}
	c := &candidate{
		cfg:   cfg,
		log:   cmp.Or(cfg.Logger, slog.Default()).With("lease", cfg.Options.Namespace+"/"+cfg.Options.Name, "identity", cfg.Options.Identity),
		watch: newWatch(),
	}
	config := rest.CopyConfig(cfg.REST)
	config.QPS, config.RateLimiter = -1, nil // requests are few, and must not wait
	leases, err := newLeases(config, cfg.Options.Namespace)
	if err != nil {
		return fmt.Errorf("leader election: client for Leases: %w", err)
	}
	c.lease = lease{client: leases, name: cfg.Options.Name}

	// The watch continues while the work ends and the Lease is released.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { c.watch.run(watching, leases, &cfg.Options, c.log) })
	defer watch.Wait()
	defer stopWatching()

	if acquired, err := c.acquire(ctx); err != nil || !acquired {
		return err
	}
	return c.lead(ctx, work)
}

// candidate is the state of one Run. Run's goroutine owns it.
type candidate struct {
	lease
	cfg     Config
	log     *slog.Logger
	watch   *watch
	refused refusal
	renewed time.Time // when the last write of the Lease that succeeded began: others count from there
}

// acquire waits until this replica holds the Lease. It reports false when ctx ended before.
func (c *candidate) acquire(ctx context.Context) (bool, error) {
	o := &c.cfg.Options
	patience := 2*o.RetryPeriod + time.Second
	reported := ""
	pause, err := c.retryAfter(ctx, c.read(ctx))
	for err == nil {
		due := max(pause, c.last.wait(o, patience, time.Now()))
		if holder := c.last.holder(); due > 0 && holder != "" && holder != reported {
			reported = holder
			if c.cfg.Standby != nil {
				c.cfg.Standby(holder)
			}
			c.log.Info("standing by", "holder", holder)
		}
		select {
		case <-ctx.Done():
			return false, nil
		case err = <-c.watch.refused:
			pause, err = c.retryAfter(ctx, err)
			continue
		case lease := <-c.watch.leases:
			c.last = c.last.observe(lease, time.Now())
			continue
		case <-time.After(due):
		}
		switch err = c.write(ctx, false); {
		case err == nil:
			return true, nil
		case errors.Is(err, errTaken):
			c.log.Debug("another replica acquired the Lease", "holder", c.last.holder())
			pause, err = 0, nil
		default:
			pause, err = c.retryAfter(ctx, err)
		}
	}
	if ctx.Err() != nil {
		return false, nil
	}
	return false, err
}

// retryAfter returns the time to wait before the next attempt after err, 0 for no error. It returns
// an error if no attempt is worthwhile.
func (c *candidate) retryAfter(ctx context.Context, err error) (time.Duration, error) {
	if err == nil || ctx.Err() != nil {
		return 0, nil
	}
	if explained := c.explain(err); explained != nil && c.refused.persists(time.Now(), c.cfg.Options.RenewDeadline) {
		return 0, explained
	}
	c.log.Warn("reading or writing the Lease failed, retrying", "error", err, "after", c.cfg.Options.RetryPeriod)
	return c.cfg.Options.RetryPeriod, nil
}

// lead runs work and renews the Lease until work has returned.
func (c *candidate) lead(ctx context.Context, work func(context.Context) error) error {
	o := &c.cfg.Options
	c.log.Info("leading")
	if c.cfg.Term != nil {
		c.cfg.Term(c.last.term())
	}
	c.cfg.Leading(true)
	defer c.cfg.Leading(false)
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(working) }()

	timer := time.NewTimer(o.RetryPeriod)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			c.release(ctx)
			return err
		case lease := <-c.watch.leases:
			if (observation{lease: lease}).holder() == o.Identity {
				continue
			}
			// Taken, released or deleted by somebody else, or an old event: read it.
		case <-timer.C:
		}
		deadline := c.renewed.Add(o.RenewDeadline)
		err := c.renew(ctx, deadline)
		if err == nil {
			timer.Reset(o.RetryPeriod)
			continue
		}
		if errors.Is(err, errTaken) || !time.Now().Before(deadline) {
			c.log.Error("leadership lost, stopping the work", "error", err)
			stop()
			lost := fmt.Errorf("leader election on Lease %s/%s: %w: %w", o.Namespace, o.Name, ErrLost, err)
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				lost = errors.Join(lost, err)
			}
			c.release(ctx) // does nothing if another replica holds it
			return lost
		}
		c.log.Warn("renewing the Lease failed, retrying", "error", err)
		timer.Reset(min(o.RetryPeriod, max(0, time.Until(deadline))))
	}
}

// renew writes the Lease once, also after ctx ended, since the work continues until it has
// returned.
func (c *candidate) renew(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	return c.write(ctx, true)
}

// errTaken says that this replica does not hold the Lease.
var errTaken = errors.New("the Lease was acquired by another replica, released or deleted")

// write acquires the Lease as last observed, or renews it. If the Lease has changed, write reads it
// and tries once more, unless another replica holds it: the error wraps errTaken then. A leader
// that finds its Lease free has lost it, since another replica may have held it meanwhile.
func (c *candidate) write(ctx context.Context, renewal bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.RenewDeadline/2)
	defer cancel()
	for attempt := 0; ; attempt++ {
		began := time.Now()
		err := c.put(ctx, c.last.acquired(&c.cfg.Options, began))
		if err == nil {
			c.renewed = began
			return nil
		}
		changed := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || c.last.lease != nil && apierrors.IsNotFound(err)
		if !changed {
			return err
		}
		if err := c.read(ctx); err != nil {
			return err
		}
		holder := c.last.holder()
		if holder != c.cfg.Options.Identity && (renewal || holder != "") {
			return fmt.Errorf("%w: its holder is %q", errTaken, holder)
		}
		if attempt > 0 {
			return err
		}
	}
}

// read gets the Lease from the API server.
func (c *candidate) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.RenewDeadline/2)
	defer cancel()
	return c.get(ctx)
}

// release releases the Lease if this replica holds it. A failure is only logged: the Lease then
// expires.
func (c *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Options.RenewDeadline/2)
	defer cancel()
	err := retry.RetryOnConflict(wait.Backoff{Steps: 2}, func() error {
		if c.last.holder() != c.cfg.Options.Identity {
			return nil
		}
		err := c.put(ctx, c.last.released(time.Now()))
		if err == nil {
			c.log.Info("released the Lease")
			return nil
		}
		if apierrors.IsConflict(err) {
			return cmp.Or(c.read(ctx), err)
		}
		return err
	})
	if err != nil {
		c.log.Warn("releasing the Lease failed, another replica takes over when it expires",
			"error", err, "after", c.cfg.Options.LeaseDuration)
	}
}

// explain returns err with what to do about it if retries alone cannot repair it, else nil.
func (c *candidate) explain(err error) error {
	advice := ""
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		advice = ": grant create, and get, list, watch and update of that name, on " +
			"leases.coordination.k8s.io, or run a single replica with --disable-leader-election"
	case apierrors.IsNotFound(err):
		advice = ": create that namespace, name another one with " +
			"--leader-election-namespace, or run a single replica with --disable-leader-election"
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
	default:
		return nil
	}
	return fmt.Errorf("leader election on Lease %s/%s: %w%s", c.cfg.Options.Namespace, c.cfg.Options.Name, err, advice)
}
