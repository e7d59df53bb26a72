package session

import (
	"container/list"
	"time"

	"github.com/workwire/workwire/pkg/runtime/schedule"
)

// expiringEntry is an entry whose message expires.
type expiringEntry struct {
	schedule.Timer
	s  *session
	el *list.Element
}

// dropExpired removes the entries whose messages have expired, so that they do not fill the queue of
// an absent client. What was sent on the current connection stays until the client acknowledges it.
// It costs O(log n) for each of them. Callers hold r.mu.
func (r *Router) dropExpired(now time.Time) {
	for due, ok := r.expiring.Pop(now); ok; due, ok = r.expiring.Pop(now) {
		if e := due.el.Value.(*entry); e.sentOn != nil && e.sentOn == due.s.conn {
			continue
		}
		r.stats.Dropped[MessageExpired]++
		r.remove(due.s, due.el)
	}
}
