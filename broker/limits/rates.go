package limits

import (
	"sync"
	"time"

	"github.com/workwire/workwire/broker/acl"
)

// sweepInterval is how often unused buckets are removed.
const sweepInterval = time.Minute

// rates holds the buckets of the identities.
type rates struct {
	mu        sync.Mutex
	buckets   map[acl.Identity]*bucket
	swept     time.Time
	throttled uint64
	paused    time.Duration
}

func newRates() rates { return rates{buckets: map[acl.Identity]*bucket{}} }

// bucket is what an identity may still send. A negative balance is paid back by waiting.
type bucket struct {
	messages, bytes float64
	at              time.Time // when the balances were as above
}

// spend subtracts messages of size bytes together at the time now, and returns the bucket and how
// long to wait until no balance is negative.
func (b bucket) spend(r Rate, messages, size int, now time.Time) (bucket, time.Duration) {
	b = b.refill(r, now)
	b.messages -= float64(messages)
	b.bytes -= float64(size)
	wait := max(-b.messages/float64(r.MessagesPerSecond), -b.bytes/float64(r.BytesPerSecond), 0)
	return b, time.Duration(wait * float64(time.Second))
}

// refill returns the bucket at the time now. A new bucket is full. A clock that goes back adds
// nothing.
func (b bucket) refill(r Rate, now time.Time) bucket {
	maxMessages, maxBytes := r.burst()
	if b.at.IsZero() {
		return bucket{maxMessages, maxBytes, now}
	}
	passed := max(now.Sub(b.at).Seconds(), 0)
	b.messages = min(b.messages+passed*float64(r.MessagesPerSecond), maxMessages)
	b.bytes = min(b.bytes+passed*float64(r.BytesPerSecond), maxBytes)
	b.at = now
	return b
}

func (b bucket) full(r Rate) bool {
	messages, bytes := r.burst()
	return b.messages >= messages && b.bytes >= bytes
}

// burst returns what may be sent at once after a pause.
func (r Rate) burst() (messages, bytes float64) {
	return max(float64(r.MessagesPerSecond)*burst, LoginMessages), float64(r.BytesPerSecond) * burst
}

// Take counts messages of size bytes together that id sends on any of its connections, and returns
// how long to wait before they are read and handled. It costs O(1), and once a minute a visit to
// every identity that has sent since.
func (l *Limiter) Take(id acl.Identity, messages, size int) time.Duration {
	id = id.Account()
	cfg, now := l.config(), l.now()
	rate := cfg.rate(id)
	l.rates.mu.Lock()
	defer l.rates.mu.Unlock()
	b := l.rates.buckets[id]
	if b == nil {
		b = &bucket{}
		l.rates.buckets[id] = b
	}
	var wait time.Duration
	if *b, wait = b.spend(rate, messages, cfg.cost(id, size), now); wait > 0 {
		l.rates.throttled++
		l.rates.paused += wait
	}
	if now.Sub(l.rates.swept) >= sweepInterval {
		l.rates.swept = now
		for other, b := range l.rates.buckets {
			if b.refill(cfg.rate(other), now).full(cfg.rate(other)) {
				delete(l.rates.buckets, other)
			}
		}
	}
	return wait
}

func (r *rates) stats() (throttled uint64, paused time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.throttled, r.paused
}
