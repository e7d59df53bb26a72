package outbox

import "time"

// SetLimits replaces the number of concurrent publishes, and how long Run goes on. Call it before there is anything to publish.
func (o *Outbox) SetLimits(inFlight int, flush time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.core.most, o.flush = inFlight, flush
}

// Works returns the number of works with a status, and InFlight that of publishes in flight.
func (o *Outbox) Works() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.core.countWorks()
}

func (c *core) countWorks() (n int) {
	for _, works := range c.works {
		n += len(works)
	}
	return n
}

func (o *Outbox) InFlight() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.core.inFlight
}
