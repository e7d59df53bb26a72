package mqtt

import (
	"errors"
	"math"
	"net"
	"syscall"
	"time"
)

const (
	initialDelay = 100 * time.Millisecond // maximum delay of the first attempt
	maxDelay     = 30 * time.Second       // maximum delay of all attempts

	// While nothing listens at the broker's address, it probably restarts. For notListeningPeriod,
	// the delays are those of attempt notListeningAttempt, at most 0.8 s.
	notListeningAttempt = 3
	notListeningPeriod  = time.Minute

	// A cluster whose node has died needs a moment to agree on who is in charge of its sessions. RabbitMQ
	// keeps a client that connects within that moment waiting for 10 s and more.
	clusterDelay = time.Second

	minLifetime = time.Second // a shorter connection counts as a failed attempt
	// Two clients with the same id take over each other's session for as long as both run.
	takeoverPeriod  = 2 * time.Minute
	takeoverAttempt = 4 // the attempt after the first takeover
)

// retryDelay returns the delay before attempt n, counted from 0: at most initialDelay, then doubled
// up to maxDelay, with a jitter over the upper half. random is in [0,1).
func retryDelay(n int, random float64) time.Duration {
	if n <= 0 {
		return time.Duration(random * float64(initialDelay))
	}
	span := math.Min(float64(initialDelay)*math.Pow(2, float64(n)), float64(maxDelay))
	return time.Duration(span/2 + random*span/2)
}

// reconnectBackoff computes the delays between attempts to connect. It is not safe for concurrent
// use.
type reconnectBackoff struct {
	attempt           int       // the number of the next attempt; -1 before the very first
	takeovers         int       // consecutive
	several           bool      // the broker has several addresses: it may be a cluster
	lost              bool      // the next attempt is the first after a good connection to one of several
	notListening      bool      // at the last attempt
	notListeningSince time.Time // the first such attempt since the last good connection, or zero
}

// nextDelay returns the delay before the next attempt.
func (b *reconnectBackoff) nextDelay(now time.Time, random float64) time.Duration {
	if b.lost {
		b.lost = false
		return clusterDelay + time.Duration(random*float64(clusterDelay))
	}
	if b.notListening && now.Sub(b.notListeningSince) < notListeningPeriod {
		b.attempt = min(b.attempt, notListeningAttempt)
	}
	n := b.attempt
	b.attempt++
	if n < 0 {
		return 0
	}
	return retryDelay(n, random)
}

// connectFailed records a failed attempt.
func (b *reconnectBackoff) connectFailed(now time.Time, err error) {
	b.notListening = isNotListening(err)
	if b.notListening && b.notListeningSince.IsZero() {
		b.notListeningSince = now
	}
}

// isNotListening reports whether err means that nothing listens at the address: the connection was
// refused, or the name, for example that of a container, does not exist.
func isNotListening(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound
}

// connectionLost records the end of a connection after this lifetime.
func (b *reconnectBackoff) connectionLost(lifetime time.Duration, takeover bool) {
	b.notListening = false
	b.lost = b.several && !takeover && lifetime >= minLifetime
	if lifetime >= minLifetime {
		b.notListeningSince = time.Time{}
	}
	switch {
	case takeover && lifetime < takeoverPeriod:
		b.takeovers++
		b.attempt = takeoverAttempt + b.takeovers - 1
	case takeover:
		b.takeovers = 1
		b.attempt = takeoverAttempt
	case lifetime >= minLifetime:
		b.takeovers, b.attempt = 0, 0
	}
}
