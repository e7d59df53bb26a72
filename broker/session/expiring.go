package session

import (
	"container/heap"
	"container/list"
	"time"
)

// expiringEntry is an entry whose message expires.
type expiringEntry struct {
	s  *session
	el *list.Element
}

func (e expiringEntry) entry() *entry { return e.el.Value.(*entry) }

// expiringEntries is a heap of the entries whose messages expire, by time. Each entry knows its
// index.
type expiringEntries []expiringEntry

func (h expiringEntries) Len() int { return len(h) }

func (h expiringEntries) Less(i, j int) bool {
	return h[i].entry().msg.expires < h[j].entry().msg.expires
}

func (h expiringEntries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].entry().expiring, h[j].entry().expiring = i+1, j+1
}

// Push implements [heap.Interface].
func (h *expiringEntries) Push(x any) {
	e := x.(expiringEntry)
	*h = append(*h, e)
	e.entry().expiring = len(*h)
}

// Pop implements [heap.Interface].
func (h *expiringEntries) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = expiringEntry{}
	*h = (*h)[:last]
	e.entry().expiring = 0
	return e
}

// dropExpired removes the entries whose messages have expired, so that they do not fill the queue of
// an absent client. What was sent on the current connection stays until the client acknowledges it.
// It costs O(log n) for each of them. Callers hold r.mu.
func (r *Router) dropExpired(now time.Time) {
	for len(r.expiring) > 0 && r.expiring[0].entry().msg.expires <= now.Unix() {
		due := heap.Pop(&r.expiring).(expiringEntry)
		if e := due.entry(); e.sentOn != nil && e.sentOn == due.s.conn {
			continue
		}
		r.stats.Dropped[MessageExpired]++
		r.remove(due.s, due.el)
	}
}
