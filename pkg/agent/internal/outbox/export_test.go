package outbox

import "time"

// SetLimits replaces the number of concurrent publishes, and how long Run goes on. Call it before there is anything to publish.
func (o *Outbox) SetLimits(inFlight int, flush time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.core.most, o.flush = inFlight, flush
}
