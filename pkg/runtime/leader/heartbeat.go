package leader

import (
	"context"
	"fmt"
	"time"
)

// Heartbeat renews a Lease by which others see that this process runs. It excludes nobody: whoever
// renews the Lease becomes its holder. It is not safe for concurrent use.
type Heartbeat struct {
	lease   lease
	options Options
}

// NewHeartbeat returns what renews the Lease with a name for duration, in whole seconds, as identity. It
// does no I/O.
func NewHeartbeat(leases Leases, name, identity string, duration time.Duration) *Heartbeat {
	return &Heartbeat{
		lease:   lease{client: leases, name: name},
		options: Options{Name: name, Identity: identity, LeaseDuration: duration},
	}
}

// Renew writes the Lease. It reads it before, the first time and after an error.
func (h *Heartbeat) Renew(ctx context.Context) error {
	if h.lease.last.lease == nil {
		if err := h.lease.get(ctx); err != nil {
			return fmt.Errorf("get Lease %s: %w", h.lease.name, err)
		}
	}
	if err := h.lease.put(ctx, h.lease.last.acquired(&h.options, time.Now())); err != nil {
		h.lease.last = observation{}
		return fmt.Errorf("write Lease %s: %w", h.lease.name, err)
	}
	return nil
}
