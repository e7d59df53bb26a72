package leader

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// readAgain is how long what was read of a Lease counts.
const readAgain = time.Second

// Others tells of Leases that this process is no candidate for whether somebody holds them. It is safe
// for concurrent use.
type Others struct {
	leases coordination.LeaseInterface

	mu   sync.Mutex
	seen map[string]seenLease // guarded by mu
}

// seenLease is what was read of a Lease.
type seenLease struct {
	observation
	read time.Time
}

// NewOthers returns an Others that reads leases. It does no I/O.
func NewOthers(leases coordination.LeaseInterface) *Others {
	return &Others{leases: leases, seen: make(map[string]seenLease)}
}

// Ended reports whether nobody holds the Lease with a name: it does not exist, was released, or was not
// renewed for its duration by the clock of this process, so that the first call for a Lease that is held
// returns false. It costs a request a second at most for each name.
func (o *Others) Ended(ctx context.Context, name string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen, now := o.seen[name], time.Now()
	if seen.read.IsZero() || now.Sub(seen.read) >= readAgain {
		lease, err := o.leases.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			lease = nil
		case err != nil:
			return false, fmt.Errorf("get Lease %s: %w", name, err)
		}
		now = time.Now()
		seen = seenLease{seen.observe(lease, now), now}
		o.seen[name] = seen
	}
	return seen.ended(now), nil
}

// ended reports whether the Lease is held by nobody, by the clock of this process alone.
func (o observation) ended(now time.Time) bool {
	const patience = 24 * time.Hour // the times in the Lease do not count
	return o.wait(&Options{}, patience, now) <= 0
}
