package leader

import (
	"context"
	"fmt"
	"time"
)

// readAgain is how long what was read of a Lease counts.
const readAgain = time.Second

// Others reports of Leases that this process is no candidate for whether somebody holds them. It is safe
// for concurrent use.
type Others struct {
	client Leases

	turn chan struct{}         // has room for one: who reads a Lease, which may take long
	seen map[string]*seenLease // owned by whose turn it is
}

// seenLease is a Lease, and when it was read.
type seenLease struct {
	lease
	read time.Time
}

// NewOthers returns an Others that reads leases. It does no I/O.
func NewOthers(leases Leases) *Others {
	return &Others{client: leases, turn: make(chan struct{}, 1), seen: make(map[string]*seenLease)}
}

// Ended reports whether nobody holds the Lease with a name: it does not exist, was released, or was not
// renewed for its duration by the clock of this process, so that the first call for a Lease that is held
// returns false. It costs a request a second at most for each name.
func (o *Others) Ended(ctx context.Context, name string) (bool, error) {
	select {
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	seen := o.seen[name]
	if seen == nil {
		seen = &seenLease{lease: lease{client: o.client, name: name}}
		o.seen[name] = seen
	}
	if time.Since(seen.read) >= readAgain {
		if err := seen.get(ctx); err != nil {
			return false, fmt.Errorf("get Lease %s: %w", name, err)
		}
		seen.read = time.Now()
	}
	return seen.last.ended(time.Now()), nil
}

// ended reports whether the Lease is held by nobody, by the clock of this process alone.
func (o observation) ended(now time.Time) bool {
	const patience = 24 * time.Hour // the times in the Lease do not count
	return o.wait(&Options{}, patience, now) <= 0
}
