package logging

import "time"

// reminderInterval is the time between log lines about a failure whose cause stays the same.
const reminderInterval = time.Hour

// Repeated decides which failures of an operation that is tried again and again are logged: the
// first one, each with another cause than the one before, and one an hour of those that stay the
// same. The zero value has seen no failure. One goroutine at a time may use it.
type Repeated struct {
	cause string
	next  time.Time // of the reminder
	left  int       // failures that were not logged since the last line
}

// Failed notes a failure with cause at now. It reports whether to log it, and how many failures
// since the last line were not logged.
func (r *Repeated) Failed(cause string, now time.Time) (log bool, notLogged int) {
	if cause == r.cause && now.Before(r.next) {
		r.left++
		return false, 0
	}
	notLogged = r.left
	*r = Repeated{cause: cause, next: now.Add(reminderInterval)}
	return true, notLogged
}

// Failing reports whether a failure was noted.
func (r *Repeated) Failing() bool { return !r.next.IsZero() }
