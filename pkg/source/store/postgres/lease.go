package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/workwire/workwire/pkg/source/store"
)

// A takeover lasts at most leaseTime + acquireInterval after the last renewal of a client that was
// killed, and a connection to the broker.
const (
	// leaseTime is how long a lease lasts after a renewal, by the clock of the database.
	leaseTime = 3 * time.Second
	// leaseMargin is how much earlier its holder stops to publish.
	leaseMargin = 500 * time.Millisecond
	// renewInterval is the time between renewals, and renewTimeout how long one may take.
	renewInterval = 700 * time.Millisecond
	renewTimeout  = time.Second
	// acquireInterval is the time between two attempts to acquire the lease.
	acquireInterval = 500 * time.Millisecond
	pruneInterval   = time.Hour
)

// validity is how long a holder may publish. Both clocks count: the monotonic one stands still while
// a machine is suspended, the other one can be set back.
type validity struct{ renewed time.Time }

// at reports whether a lease that was renewed by a statement sent at v.renewed cannot have expired.
func (v validity) at(now time.Time) bool {
	const time = leaseTime - leaseMargin
	elapsed, wall := now.Sub(v.renewed), now.Round(0).Sub(v.renewed.Round(0))
	return !v.renewed.IsZero() && elapsed < time && wall < time && elapsed >= 0
}

// lease is a [store.Lease]: a row with an epoch and a time at which it expires. The epoch is also in
// the row of the source, where each update of the holder compares it: a holder that hangs and comes
// back writes nothing.
type lease struct {
	store *Store
	epoch int64

	mu       sync.Mutex
	validity validity
	renewed  chan struct{} // closed and replaced at each renewal
}

// Acquire tries every 500 ms to acquire the lease, and goes on after failures.
func (s *Store) Acquire(ctx context.Context) (store.Lease, error) {
	failing := false
	for {
		sent := time.Now()
		epoch, err := s.acquire(ctx)
		switch {
		case err == nil && epoch > 0:
			s.epoch.Store(epoch)
			return &lease{store: s, epoch: epoch, validity: validity{sent}, renewed: make(chan struct{})}, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, store.ErrWentBack):
			return nil, err
		case err != nil && !failing:
			s.log.Warn("the lease cannot be acquired, retrying", "error", err)
		}
		failing = err != nil
		select {
		case <-time.After(acquireInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// acquire returns the epoch of the lease, 0 if another client has it. The row of the source is locked
// once the lease has expired: updates that have begun end before.
func (s *Store) acquire(ctx context.Context) (epoch int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, "UPDATE workwire_leases SET epoch = epoch + 1, expires = clock_timestamp() + $2::interval "+
			"WHERE source = $1 AND expires < clock_timestamp() RETURNING epoch", s.source, leaseTime).Scan(&epoch)
		if errors.Is(err, pgx.ErrNoRows) {
			epoch = 0
			return nil
		}
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE workwire_sources SET epoch = $2 WHERE id = $1", s.source, epoch)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("acquire the lease: %w", err)
	}
	return epoch, nil
}

// Hold renews the lease every 700 ms, and goes on after failures.
func (l *lease) Hold(ctx context.Context) error {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	pruned := time.Time{}
	for {
		if time.Since(pruned) > pruneInterval {
			pruned = time.Now()
			if err := l.store.prune(ctx); err != nil && ctx.Err() == nil {
				l.store.log.Warn("removed works cannot be pruned, retrying in an hour", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return l.release(context.WithoutCancel(ctx))
		case <-ticker.C:
		}
		if err := l.renew(ctx); errors.Is(err, store.ErrLeaseLost) {
			return err
		} else if err != nil && ctx.Err() == nil {
			l.store.log.Warn("the lease cannot be renewed, retrying", "error", err)
		}
	}
}

func (l *lease) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	sent := time.Now()
	done, err := l.store.pool.Exec(ctx, "UPDATE workwire_leases SET expires = clock_timestamp() + $3::interval WHERE source = $1 AND epoch = $2",
		l.store.source, l.epoch, leaseTime)
	switch {
	case err != nil:
		return err
	case done.RowsAffected() == 0:
		return store.ErrLeaseLost
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.validity = validity{sent}
	close(l.renewed)
	l.renewed = make(chan struct{})
	return nil
}

// release ends the lease, so that the next client does not wait for it to expire. If that fails, it
// does.
func (l *lease) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	l.mu.Lock()
	l.validity = validity{}
	l.mu.Unlock()
	_, err := l.store.pool.Exec(ctx, "UPDATE workwire_leases SET expires = '-infinity' WHERE source = $1 AND epoch = $2", l.store.source, l.epoch)
	if err != nil {
		l.store.log.Warn("the lease cannot be released, it expires", "error", err)
	}
	return nil
}

// Wait returns nil while the lease cannot have expired.
func (l *lease) Wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		valid, renewed := l.validity.at(time.Now()), l.renewed
		l.mu.Unlock()
		if valid {
			return nil
		}
		select {
		case <-renewed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
