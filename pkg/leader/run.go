package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
)

// ErrLost is what [Run]'s error wraps when leadership was lost: another replica
// took the Lease, or it could not be renewed in time.
var ErrLost = errors.New("leadership lost")

// Config is what [Run] needs.
type Config struct {
	// Options must have passed Validate.
	Options Options
	// REST says how to reach the API server that holds the Lease; required
	// unless Options.Disabled. Requests about the Lease go through a client of
	// their own, so that they do not wait behind those of the work; its
	// QPS, Burst and RateLimiter do not count.
	REST *rest.Config
	// Leading, if set, is told when leadership begins (true) and when the work
	// has ended (false). It must return at once.
	Leading func(bool)
	// Logger is required.
	Logger *slog.Logger
}

// Run waits until this replica leads, runs work, and gives the Lease back when
// work has returned. work's context ends with ctx and when leadership is lost;
// work must return then: it has LeaseDuration less RenewDeadline until another
// replica may start.
//
// Run returns work's error; nil when ctx ended before it led; an error that
// wraps [ErrLost]; or one that says why the Lease can not be had, such as missing
// rights. An API server that can not be reached is no error: Run goes on trying.
// When it returns, work has returned.
func Run(ctx context.Context, cfg Config, work func(context.Context) error) error {
	if faults := cfg.Options.Validate(); len(faults) > 0 {
		return errors.Join(faults...)
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
		cfg:  cfg,
		log:  cfg.Logger.With("lease", cfg.Options.Namespace+"/"+cfg.Options.Name, "identity", cfg.Options.Identity),
		seen: newWatch(),
	}
	config := rest.CopyConfig(cfg.REST)
	config.QPS, config.RateLimiter = -1, nil // renewals are few, and must not wait
	client, err := coordination.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("leader election: client for Leases: %w", err)
	}
	c.leases = client.Leases(cfg.Options.Namespace)

	// The watch goes on while the work ends and the Lease is released.
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { c.seen.run(watching, client, &cfg.Options, c.log) })
	defer watch.Wait()
	defer stopWatching()

	if won, err := c.acquire(ctx); err != nil || !won {
		return err
	}
	return c.lead(ctx, work)
}

// candidate is one Run. Its goroutine owns it.
type candidate struct {
	cfg    Config
	log    *slog.Logger
	leases coordination.LeaseInterface
	seen   *watch
	last   sighting
}

// acquire waits until the Lease is this replica's. It reports false when ctx
// ended first.
func (c *candidate) acquire(ctx context.Context) (bool, error) {
	o := &c.cfg.Options
	patience := 2*o.RetryPeriod + time.Second
	reported := ""
	pause := time.Duration(0)
	if err := c.read(ctx); err != nil {
		if fatal := c.fatal(err); fatal != nil {
			return false, fatal
		}
		pause = c.retryLater(ctx, err)
	}
	for {
		now := time.Now()
		due := max(pause, c.last.wait(o.Identity, patience, now))
		if holder := c.last.holder(); due > 0 && holder != "" && holder != reported {
			reported = holder
			c.log.Info("standing by", "holder", holder)
		}
		timer := time.NewTimer(due)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false, nil
		case err := <-c.seen.refused:
			timer.Stop()
			return false, c.fatal(err)
		case lease := <-c.seen.leases:
			timer.Stop()
			c.last = c.last.see(lease, time.Now())
			continue
		case <-timer.C:
		}
		pause = 0
		switch err := c.claim(ctx, false); {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, nil
		case errors.Is(err, errTaken):
			c.log.Debug("another replica was faster", "holder", c.last.holder())
		default:
			if fatal := c.fatal(err); fatal != nil {
				return false, fatal
			}
			pause = c.retryLater(ctx, err)
		}
	}
}

// retryLater logs err and gives the time to wait before the next attempt.
func (c *candidate) retryLater(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		c.log.Warn("the Lease can not be read or written; trying again", "error", err, "after", c.cfg.Options.RetryPeriod)
	}
	return c.cfg.Options.RetryPeriod
}

// lead runs work and renews the Lease until work has returned.
func (c *candidate) lead(ctx context.Context, work func(context.Context) error) error {
	o := &c.cfg.Options
	c.log.Info("leading")
	c.cfg.Leading(true)
	defer c.cfg.Leading(false)
	working, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- work(working) }()

	renewed := time.Now()
	timer := time.NewTimer(o.RetryPeriod)
	defer timer.Stop()
	for {
		select {
		case err := <-ended:
			c.release(ctx)
			return err
		case lease := <-c.seen.leases:
			if (sighting{lease: lease}).holder() == o.Identity {
				continue
			}
			// Taken, released or deleted by somebody, or an old story: find out.
		case <-timer.C:
		}
		started := time.Now()
		err := c.renew(ctx, renewed.Add(o.RenewDeadline))
		if err == nil {
			renewed = started
			timer.Reset(o.RetryPeriod)
			continue
		}
		if errors.Is(err, errTaken) || !time.Now().Before(renewed.Add(o.RenewDeadline)) {
			c.log.Error("leadership lost; stopping the work", "error", err)
			stop()
			lost := fmt.Errorf("leader election on Lease %s/%s: %w: %w", o.Namespace, o.Name, ErrLost, err)
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				lost = errors.Join(lost, err)
			}
			c.release(ctx) // does nothing if somebody else has it
			return lost
		}
		c.log.Warn("the Lease could not be renewed; trying again", "error", err)
		timer.Reset(min(o.RetryPeriod, max(0, time.Until(renewed.Add(o.RenewDeadline)))))
	}
}

// renew writes the Lease once more, also after ctx ended, since the work goes on
// until it has returned.
func (c *candidate) renew(ctx context.Context, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	return c.claim(ctx, true)
}

// errTaken says that the Lease is not this replica's.
var errTaken = errors.New("the Lease was taken by another replica, released or deleted")

// claim takes the Lease as last seen, or renews it. When it turns out to have
// changed, claim looks again and tries once more what is still to be had:
// errTaken says that it is not. A leader that finds its Lease free has lost it,
// since another one may have held it meanwhile.
func (c *candidate) claim(ctx context.Context, renewal bool) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.RenewDeadline/2)
	defer cancel()
	for attempt := 0; ; attempt++ {
		want := c.last.claimed(&c.cfg.Options, time.Now())
		var lease *coordinationv1.Lease
		var err error
		if c.last.lease == nil {
			lease, err = c.leases.Create(ctx, want, metav1.CreateOptions{})
		} else {
			lease, err = c.leases.Update(ctx, want, metav1.UpdateOptions{})
		}
		if err == nil {
			c.last = c.last.see(lease, time.Now())
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

// read gets the Lease as it is now.
func (c *candidate) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Options.RenewDeadline/2)
	defer cancel()
	lease, err := c.leases.Get(ctx, c.cfg.Options.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = nil
	case err != nil:
		return err
	}
	c.last = c.last.see(lease, time.Now())
	return nil
}

// release hands the Lease over, if it is still this replica's. A failure is only
// logged: the Lease expires then.
func (c *candidate) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Options.RenewDeadline/2)
	defer cancel()
	for attempt := 0; ; attempt++ {
		if c.last.lease == nil || c.last.holder() != c.cfg.Options.Identity {
			return
		}
		_, err := c.leases.Update(ctx, c.last.released(time.Now()), metav1.UpdateOptions{})
		if err == nil {
			c.log.Info("released the Lease")
			return
		}
		if apierrors.IsConflict(err) && attempt == 0 {
			err = c.read(ctx)
			if err == nil {
				continue
			}
		}
		c.log.Warn("the Lease could not be released; another replica takes over when it expires",
			"error", err, "after", c.cfg.Options.LeaseDuration)
		return
	}
}

// fatal gives the error to return when err is one that trying again does not
// mend, else nil.
func (c *candidate) fatal(err error) error {
	o := &c.cfg.Options
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("leader election on Lease %s/%s: %w: grant create, and get, list, watch and update of that name, on "+
			"leases.coordination.k8s.io, or run a single replica with --disable-leader-election", o.Namespace, o.Name, err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("leader election on Lease %s/%s: %w: create that namespace, name another one with "+
			"--leader-election-namespace, or run a single replica with --disable-leader-election", o.Namespace, o.Name, err)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return fmt.Errorf("leader election on Lease %s/%s: %w", o.Namespace, o.Name, err)
	default:
		return nil
	}
}
