package mqtt

import (
	"errors"
	"math"
	"net"
	"syscall"
	"time"
)

const (
	firstRetry = 100 * time.Millisecond // the first attempt to reconnect begins within this
	lastRetry  = 30 * time.Second       // and later ones at most this far apart

	// While nothing listens at the broker's address an attempt costs the broker
	// nothing, and a restart is soon over: so the intervals do not grow beyond those
	// of attempt absentRetry, 0.8 s, until the outage has lasted for absentFor.
	absentRetry = 3
	absentFor   = time.Minute

	// A connection that lived shorter is as if it had not come up, so that a
	// broker that hangs up at once is not stormed.
	shortLife = time.Second
	// Two clients of one id end each other's connection for as long as both run.
	shortTakeover  = 2 * time.Minute
	takeoverHeadUp = 4 // retries to count for the first takeover
)

// retryDelay is how long to wait before attempt n, counted from 0, where random
// is in [0,1): up to firstRetry, then doubling up to lastRetry, each spread over
// its upper half so that clients that lost the same broker do not return in step.
func retryDelay(n int, random float64) time.Duration {
	if n <= 0 {
		return time.Duration(random * float64(firstRetry))
	}
	span := math.Min(float64(firstRetry)*math.Pow(2, float64(n)), float64(lastRetry))
	return time.Duration(span/2 + random*span/2)
}

// retries counts the attempts to connect since the connection was last good.
// One goroutine at a time may use it.
type retries struct {
	next      int       // the number of the next attempt; -1 before the first of all
	takeovers int       // in a row
	absent    bool      // nothing listened at the last attempt
	since     time.Time // when that was so first; zero: not since the connection was last good
}

// attempt is the delay before the next attempt, asked for at now.
func (r *retries) attempt(now time.Time, random float64) time.Duration {
	if r.absent && now.Sub(r.since) < absentFor {
		r.next = min(r.next, absentRetry)
	}
	n := r.next
	r.next++
	if n < 0 {
		return 0
	}
	return retryDelay(n, random)
}

// failed takes note that an attempt failed at now.
func (r *retries) failed(now time.Time, err error) {
	r.absent = isAbsent(err)
	if r.absent && r.since.IsZero() {
		r.since = now
	}
}

// isAbsent says whether err means that nothing listens at an address: a port that
// nobody has, or a name that, as that of a container, went with who had it.
func isAbsent(err error) bool {
	var dns *net.DNSError
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &dns) && dns.IsNotFound
}

// lost takes note that a connection ended that had lived so long, by a takeover
// or for any other reason.
func (r *retries) lost(lived time.Duration, takeover bool) {
	r.absent = false
	if lived >= shortLife {
		r.since = time.Time{}
	}
	switch {
	case takeover && lived < shortTakeover:
		r.takeovers++
		r.next = takeoverHeadUp + r.takeovers - 1
	case takeover:
		r.takeovers = 1
		r.next = takeoverHeadUp
	case lived >= shortLife:
		r.takeovers, r.next = 0, 0
	}
}
