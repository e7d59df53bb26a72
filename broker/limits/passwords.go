package limits

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
)

const (
	// suspicion is how long a user is suspect at an address after the last wrong password there.
	suspicion = time.Minute
	// suspectUsers is with how many user names wrong passwords make all of their address suspect.
	suspectUsers = 8
	// suspectPart: the checks of suspects use one part in so many of Config.PasswordChecks.
	suspectPart = 10
	// maxSuspects is how many checks of suspects wait at one address.
	maxSuspects = 100
)

// ErrWrongPasswords means that a password was not checked, because wrong ones keep coming from its
// address.
var ErrWrongPasswords = errors.New("too many wrong passwords come from this address")

// passwordQueue orders password checks, so that neither those of one address delay those of others,
// nor wrong passwords the clients that are connected. Checks run in the goroutines of their callers.
type passwordQueue struct {
	mu       sync.Mutex
	waiting  checks // of those that were not suspect when they came
	suspects checks
	running  int
	resting  bool                 // a check of a suspect runs, or the pause after it has not passed
	failed   map[string]*failures // by address
	swept    time.Time
	checked  uint64
}

// checks have turns by address, and of an address by user.
type checks = *fairqueue.Nested[*passwordCheck, string, string]

type passwordCheck struct {
	address, user string
	start         chan struct{} // closed when the check may run, or is dropped
	suspect       bool          // it runs as one
	dropped       bool          // written before start is closed
}

// failures are the wrong passwords of an address.
type failures struct {
	users map[string]struct{} // at most suspectUsers
	last  time.Time
}

func newPasswordQueue() passwordQueue {
	address, user := func(c *passwordCheck) string { return c.address }, func(c *passwordCheck) string { return c.user }
	return passwordQueue{waiting: fairqueue.NewNested(address, user), suspects: fairqueue.NewNested(address, user), failed: map[string]*failures{}}
}

// Authenticate calls check when it is the turn of a user name at an address, and returns when check has
// returned, or an error if ctx ends before it begins. check reports whether the password is right. At most
// Config.PasswordChecks run at a time; addresses take turns, and the user names of an address.
//
// A user name is suspect at an address for a minute after a wrong password, and so are all of an address
// with wrong passwords for 8 of them. Checks of suspects run one at a time, with pauses, so that they use a
// tenth of Config.PasswordChecks at most. 100 of them wait at an address: one more, and the oldest of the
// user name with the most of them returns [ErrWrongPasswords].
//
// Call it only for checks that cost CPU time. Waiting costs none.
func (l *Limiter) Authenticate(ctx context.Context, address, user string, check func() bool) error {
	sum := sha256.Sum256([]byte(user)) // a name can be long
	q, c := &l.passwords, &passwordCheck{address: address, user: string(sum[:16]), start: make(chan struct{})}
	q.mu.Lock()
	q.waiting.Push(c)
	l.startChecks()
	q.mu.Unlock()

	select {
	case <-c.start:
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		if !q.waiting.Remove(c) && !q.suspects.Remove(c) && !c.dropped { // its turn came at the same moment
			l.endCheck(c, 0)
		}
		return ctx.Err()
	}
	if c.dropped {
		return ErrWrongPasswords
	}
	right, began := false, time.Now()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.checked++
		if !right {
			q.failed[address] = q.failed[address].with(c.user, l.now())
		}
		l.endCheck(c, time.Since(began))
	}()
	right = check()
	return nil
}

// with returns f after a wrong password of user. f may be nil.
func (f *failures) with(user string, now time.Time) *failures {
	if !f.current(now) {
		f = &failures{users: map[string]struct{}{}}
	}
	if len(f.users) < suspectUsers {
		f.users[user] = struct{}{}
	}
	f.last = now
	return f
}

// current reports whether the last wrong password came within suspicion.
func (f *failures) current(now time.Time) bool { return f != nil && now.Sub(f.last) < suspicion }

// suspects reports whether user is suspect.
func (f *failures) suspects(user string, now time.Time) bool {
	if !f.current(now) {
		return false
	}
	_, failed := f.users[user]
	return failed || len(f.users) >= suspectUsers
}

// rest returns how long no check of a suspect begins after one that took that long, so that they use a
// part of limit checks at a time only.
func rest(took time.Duration, limit int) time.Duration {
	return max(took*suspectPart/time.Duration(limit)-took, 0)
}

// startChecks begins the checks that may run. Callers hold passwords.mu, as for the functions below.
func (l *Limiter) startChecks() {
	q, limit, now := &l.passwords, l.config().PasswordChecks, l.now()
	for q.running < limit {
		c := q.next(now)
		if c == nil {
			return
		}
		q.running++
		close(c.start)
	}
}

// next removes and returns the check that begins next, or nil if none may. Those of suspects have their
// small part also while others wait.
func (q *passwordQueue) next(now time.Time) *passwordCheck {
	for {
		if q.suspects.Len() > 0 && !q.resting {
			q.resting = true
			c := q.suspects.Pop()
			c.suspect = true
			return c
		}
		if q.waiting.Len() == 0 {
			return nil
		}
		c := q.waiting.Pop()
		if !q.failed[c.address].suspects(c.user, now) {
			return c
		}
		if q.suspects.Push(c); q.suspects.LenOf(c.address) > maxSuspects {
			dropped := q.suspects.PopLongest(c.address)
			dropped.dropped = true
			close(dropped.start)
		}
	}
}

// endCheck ends a check that has started, and took so long.
func (l *Limiter) endCheck(c *passwordCheck, took time.Duration) {
	q, now := &l.passwords, l.now()
	q.running--
	if c.suspect {
		time.AfterFunc(rest(took, l.config().PasswordChecks), func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.resting = false
			l.startChecks()
		})
	}
	if now.Sub(q.swept) >= suspicion {
		q.swept = now
		for address, f := range q.failed {
			if !f.current(now) {
				delete(q.failed, address)
			}
		}
	}
	l.startChecks()
}

func (q *passwordQueue) stats() (checked uint64, waiting int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.checked, q.waiting.Len() + q.suspects.Len()
}
