package limits

import (
	"context"
	"slices"
	"sync"
	"time"
)

// suspicion is how long an address counts as suspect after a wrong password.
const suspicion = time.Minute

// passwordQueue orders password checks, so that the checks of one address do not delay those of
// others. Checks run in the goroutines of their callers.
type passwordQueue struct {
	mu       sync.Mutex
	waiting  turns[*passwordCheck]
	running  int                  // of all addresses
	suspects int                  // of those, from suspect addresses
	failed   map[string]time.Time // when the last wrong password of an address came
	swept    time.Time
	checked  uint64
}

type passwordCheck struct {
	start   chan struct{} // closed when the check may run
	suspect bool          // the address was suspect then
}

func newPasswordQueue() passwordQueue {
	return passwordQueue{waiting: newTurns[*passwordCheck](), failed: map[string]time.Time{}}
}

// Authenticate calls check when it is the turn of address, and returns when check has returned, or
// an error if ctx ends before it begins. check reports whether the password is right. At most
// Config.PasswordChecks run at a time; addresses take turns, and those from which a wrong password
// came in the last minute share half of that. Call it only for checks that cost CPU time. Waiting
// costs no CPU time; the start of a check visits the waiting addresses that may not begin.
func (l *Limiter) Authenticate(ctx context.Context, address string, check func() bool) error {
	q, c := &l.passwords, &passwordCheck{start: make(chan struct{})}
	q.mu.Lock()
	q.waiting.add(address, c)
	l.startChecks()
	q.mu.Unlock()

	select {
	case <-c.start:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.waiting.leave(address, c) { // its turn came at the same moment
			l.endCheck(c)
		}
		return ctx.Err()
	}
	right := false
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.checked++
		if !right {
			q.failed[address] = l.now()
		}
		l.endCheck(c)
	}()
	right = check()
	return nil
}

// nextTurn returns the index in turns of the address whose check begins now, or -1 if none may.
func nextTurn(turns []string, suspect func(address string) bool, running, suspects, limit int) int {
	if running >= limit {
		return -1
	}
	return slices.IndexFunc(turns, func(address string) bool {
		return suspects < max(limit/2, 1) || !suspect(address)
	})
}

// startChecks begins the checks that may run. Callers hold passwords.mu, as for the functions below.
func (l *Limiter) startChecks() {
	q, limit, now := &l.passwords, l.config().PasswordChecks, l.now()
	suspect := func(address string) bool {
		last, failed := q.failed[address]
		return failed && now.Sub(last) < suspicion
	}
	for {
		i := nextTurn(q.waiting.order, suspect, q.running, q.suspects, limit)
		if i < 0 {
			return
		}
		address := q.waiting.order[i]
		c := q.waiting.next(i)
		q.running++
		if c.suspect = suspect(address); c.suspect {
			q.suspects++
		}
		close(c.start)
	}
}

// endCheck ends a check that has started.
func (l *Limiter) endCheck(c *passwordCheck) {
	q, now := &l.passwords, l.now()
	q.running--
	if c.suspect {
		q.suspects--
	}
	if now.Sub(q.swept) >= sweepInterval {
		q.swept = now
		for address, last := range q.failed {
			if now.Sub(last) >= suspicion {
				delete(q.failed, address)
			}
		}
	}
	l.startChecks()
}

func (q *passwordQueue) stats() (checked uint64, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.checked, q.waiting.len()
}
