package session

import (
	"container/list"
	"time"

	"github.com/workwire/workwire/pkg/runtime/schedule"
)

// entry is a message in the queue of a session.
type entry struct {
	msg       *shared
	publisher string // the identity
	packetID  uint16 // 0: not sent yet
	qos       byte
	state     state
	stored    bool // the entry is in the store, or will be

	expiring *expiringEntry // in Router.expiring, unless that has had its time; nil: its message does not expire
}

// shared is a message in one or more queues. Its body is removed from memory when it is on disk and
// the bodies in memory exceed bodyCache.
type shared struct {
	id         uint64
	bytes      int64
	body       *Message // nil: read it from the store
	refs       int      // number of entries
	storedRefs int      // number of entries in the store
	expires    int64    // Message.Expires
	pinned     bool     // the body stays in memory, and counts there: an entry is not in the store
	batch      uint64   // batch of the store that makes it durable
	unwritten  int64    // bytes that it counts in Router.unwritten, with its entries
}

func newShared(m *Message) *shared {
	return &shared{bytes: m.size(), body: m, expires: m.Expires}
}

// enqueue appends e for msg to the queue of s. It returns ErrShare if the publisher has more than its
// share of the queue, and ends s if that exceeds its limits.
func (r *Router) enqueue(s *session, msg *shared, e *entry) error {
	if r.sessions[s.id] != s {
		return nil // a previous message ended it
	}
	if s.conn == nil && e.qos == 0 {
		return nil // MQTT: QoS 0 messages are for connected clients only
	}
	if msg.expires > 0 && msg.expires <= r.cfg.Now().Unix() {
		if !s.ready(e) {
			r.stats.Dropped[MessageExpired]++
			return nil
		}
		e.state = started
	}
	e.stored = r.stores(s, e)
	switch admit(r.arrival(s, e.publisher, msg, e)) {
	case dropped:
		r.stats.Dropped[QoS0]++
		return nil
	case refused:
		r.stats.Refused++
		return ErrShare
	case endSession:
		r.stats.Dropped[QueueFull]++
		r.end(s, QueueFull)
		return nil
	}
	if msg.id == 0 {
		r.lastID++
		msg.id = r.lastID
	}
	if msg.refs == 0 && msg.body != nil {
		r.cachedBytes += msg.bytes
	}
	el := r.push(s, msg, e)
	if s.next == nil {
		s.next = el
	}
	if e.stored {
		r.storeEntry(s, e)
	}
	if s.conn != nil {
		s.conn.wake()
	}
	r.limitTotal()
	return nil
}

// ready reports whether the client can receive e at once: it is connected, nothing waits before e, and
// it may have one more unacknowledged message. Then the delivery of a message with an expiry interval of
// 0 has started when it comes; all other copies are deleted (MQTT 5, 3.3.2.3.3).
func (s *session) ready(e *entry) bool {
	return s.conn != nil && s.next == nil && (e.qos == 0 || s.inFlight < s.conn.window)
}

// stores reports whether the store keeps e.
func (r *Router) stores(s *session, e *entry) bool {
	return r.cfg.Store != nil && e.qos > 0 && s.durable()
}

// push appends e for msg to the queue of s.
func (r *Router) push(s *session, msg *shared, e *entry) *list.Element {
	e.msg = msg
	if msg.refs == 0 {
		r.totalBytes += msg.bytes
	}
	r.totalBytes += entryBytes
	if !e.stored {
		r.totalMemory += entryBytes
		if !msg.pinned {
			msg.pinned = true
			r.totalMemory += msg.bytes
		}
	}
	msg.refs++
	r.count(s, e, amount{1, msg.bytes + entryBytes})
	r.stats.Queued++
	r.stats.QueuedBytes += msg.bytes
	el := s.queue.PushBack(e)
	if msg.expires > 0 {
		e.expiring = &expiringEntry{s: s, el: el}
		r.expiring.Set(e.expiring, time.Unix(msg.expires, 0))
	}
	return el
}

// count adds change to what is in the queue of s and of the publisher of e.
func (r *Router) count(s *session, e *entry, change amount) {
	s.queued = s.queued.plus(change)
	if s.publishers[e.publisher] = s.publishers[e.publisher].plus(change); s.publishers[e.publisher].messages == 0 {
		delete(s.publishers, e.publisher)
	}
	of := r.publishers[e.publisher]
	of.bytes += change.bytes
	if !e.stored {
		s.memory += change.bytes
		of.memory += change.bytes
	}
	if r.publishers[e.publisher] = of; of == (held{}) {
		delete(r.publishers, e.publisher)
	}
}

// held is what a publisher has in all queues: bytes, and those of them in memory only.
type held struct{ bytes, memory int64 }

// remove removes an entry from the queue of s.
func (r *Router) remove(s *session, el *list.Element) {
	e := el.Value.(*entry)
	if s.next == el {
		s.next = el.Next()
	}
	s.queue.Remove(el)
	if e.expiring != nil {
		r.expiring.Remove(e.expiring)
	}
	if e.packetID != 0 {
		delete(s.byPacketID, e.packetID)
	}
	r.count(s, e, amount{}.minus(amount{1, e.msg.bytes + entryBytes}))
	r.stats.Queued--
	r.stats.QueuedBytes -= e.msg.bytes
	if e.stored {
		r.deleteEntry(s, e)
	}
	e.msg.refs--
	r.totalBytes -= entryBytes
	if !e.stored {
		r.totalMemory -= entryBytes
		r.unpin(e.msg)
	}
	if e.msg.refs == 0 {
		r.totalBytes -= e.msg.bytes
		if e.msg.pinned {
			r.totalMemory -= e.msg.bytes
		}
		if e.msg.body != nil {
			r.cachedBytes -= e.msg.bytes
			e.msg.body = nil
		}
	}
}

// unpin no longer counts msg in memory if all entries that are left of it are in the store.
func (r *Router) unpin(msg *shared) {
	if !msg.pinned || msg.refs == 0 || msg.refs > msg.storedRefs {
		return
	}
	msg.pinned = false
	r.totalMemory -= msg.bytes
	if msg.batch <= r.committed { // otherwise Committed looks at it
		r.limitCache(msg)
	}
}

// limitCache removes the body of msg, which is on disk, from memory if the bodies there exceed bodyCache.
func (r *Router) limitCache(msg *shared) {
	if r.cachedBytes > bodyCache && msg.body != nil {
		msg.body = nil
		r.cachedBytes -= msg.bytes
	}
}

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
		r.move(due.s, due.el, expired)
	}
}
