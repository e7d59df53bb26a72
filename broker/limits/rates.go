package limits

import (
	"sync"
	"time"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/runtime/quota"
)

// rates holds what the identities may still send.
type rates struct {
	mu        sync.Mutex
	roles     map[acl.Role]granted
	throttled uint64
	paused    time.Duration
}

// granted is what each identity of a role has left of a rate.
type granted struct {
	rate Rate
	left *quota.Quotas[string]
}

// quota returns r with what may be sent at once after a pause: one message and byte more, because [quota.Quotas.Wait] waits
// until that much is left.
func (r Rate) quota() quota.Rates {
	messages, bytes := float64(r.MessagesPerSecond), float64(r.BytesPerSecond)
	return quota.Rates{
		quota.Messages: {PerSecond: messages, Burst: max(messages*burst, LoginMessages) + 1},
		quota.Bytes:    {PerSecond: bytes, Burst: bytes*burst + 1},
	}
}

// Take counts messages of size bytes together that id sends on any of its connections, and returns
// how long to wait before they are read and handled.
func (l *Limiter) Take(id acl.Identity, messages, size int) time.Duration {
	id = id.Account()
	cfg, now := l.config(), l.now()
	l.rates.mu.Lock()
	defer l.rates.mu.Unlock()
	role := l.rates.roles[id.Role]
	if rate := cfg.rate(id); role.rate != rate {
		role = granted{rate, quota.New[string](quota.Config{Rates: rate.quota()})}
		l.rates.roles[id.Role] = role
	}
	role.left.Reserve(id.ID, quota.Cost{quota.Messages: float64(messages), quota.Bytes: float64(cfg.cost(id, size))}, now)
	wait := role.left.Wait(id.ID, quota.Cost{quota.Messages: 1, quota.Bytes: 1}, now)
	if wait > 0 {
		l.rates.throttled++
		l.rates.paused += wait
	}
	return wait
}

func (r *rates) stats() (throttled uint64, paused time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.throttled, r.paused
}
