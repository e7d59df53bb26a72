package session

import (
	"container/heap"
	"container/list"
	"time"
)

// session is the state of one client. It is in Router.sessions until it ends.
type session struct {
	id, owner string
	expiry    uint32 // seconds without a connection until it ends; or NeverExpires
	subs      map[string]Subscription

	queue        list.List                // of *entry, in order of arrival
	next         *list.Element            // the first entry not sent on this connection; nil: none
	byPacketID   map[uint16]*list.Element // entries that have a packet identifier
	lastPacketID uint16
	bytes        int64 // of the queue

	conn           *Conn     // nil while no client is connected
	disconnectedAt time.Time // when the last client disconnected

	stored     bool   // the session is in the store
	subscribed uint64 // batch of the store that makes the subscriptions durable

	will   *Will // of the last client, not yet published
	willAt time.Time
}

func (s *session) durable() bool { return s.expiry > 0 }

func (s *session) totalBytes() int64 { return s.bytes + int64(s.queue.Len())*entryBytes }

// entry is a message in the queue of a session.
type entry struct {
	msg    *shared
	qos    byte
	retain bool
	subIDs []int

	packetID uint16 // 0: not sent yet
	sentOn   *Conn  // the connection it was last sent on
	stored   bool   // the entry is in the store

	expiring int // index in Router.expiring plus one; 0: not there
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
	pinned     bool     // the body stays in memory: an entry is not in the store
	batch      uint64   // batch of the store that makes it durable
}

func newShared(m *Message) *shared {
	return &shared{bytes: m.size(), body: m, expires: m.Expires}
}

// addSession adds a new session. Callers hold r.mu, as for all functions below.
func (r *Router) addSession(id, owner string) *session {
	s := &session{id: id, owner: owner, subs: map[string]Subscription{}, byPacketID: map[uint16]*list.Element{}}
	r.sessions[id] = s
	insert(r.owners, owner, s, struct{}{})
	return s
}

// enqueue appends e for msg to the queue of s, and ends s if that exceeds its limits.
func (r *Router) enqueue(s *session, msg *shared, e *entry) {
	if r.sessions[s.id] != s {
		return // a previous message ended it
	}
	if s.conn == nil && e.qos == 0 {
		return // MQTT: QoS 0 messages are for connected clients only
	}
	if s.queue.Len() >= r.cfg.MaxQueuedMessages || s.bytes+msg.bytes > r.cfg.MaxQueuedBytes {
		r.stats.Dropped[QueueFull]++
		r.end(s, QueueFull)
		return
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
	if r.cfg.Store != nil && e.qos > 0 && s.durable() {
		r.storeEntry(s, e)
	} else {
		msg.pinned = true
	}
	if s.conn != nil {
		s.conn.signal()
	}
	r.limitTotal()
}

// limitTotal ends the sessions with the largest queues until the limit of all queues is kept.
func (r *Router) limitTotal() {
	for r.cfg.MaxTotalBytes > 0 && r.totalBytes > r.cfg.MaxTotalBytes {
		var fullest *session
		for _, s := range r.sessions {
			if fullest == nil || s.totalBytes() > fullest.totalBytes() {
				fullest = s
			}
		}
		if fullest == nil {
			return
		}
		r.end(fullest, StoreFull)
	}
}

// push appends e for msg to the queue of s.
func (r *Router) push(s *session, msg *shared, e *entry) *list.Element {
	e.msg = msg
	if msg.refs == 0 {
		r.totalBytes += msg.bytes
	}
	r.totalBytes += entryBytes
	msg.refs++
	s.bytes += msg.bytes
	r.stats.Queued++
	r.stats.QueuedBytes += msg.bytes
	el := s.queue.PushBack(e)
	if msg.expires > 0 {
		heap.Push(&r.expiring, expiringEntry{s, el})
	}
	return el
}

// remove removes an entry from the queue of s.
func (r *Router) remove(s *session, el *list.Element) {
	e := el.Value.(*entry)
	if s.next == el {
		s.next = el.Next()
	}
	s.queue.Remove(el)
	if e.expiring > 0 {
		heap.Remove(&r.expiring, e.expiring-1)
	}
	if e.packetID != 0 {
		delete(s.byPacketID, e.packetID)
	}
	s.bytes -= e.msg.bytes
	r.stats.Queued--
	r.stats.QueuedBytes -= e.msg.bytes
	if e.stored {
		r.deleteEntry(s, e)
	}
	e.msg.refs--
	r.totalBytes -= entryBytes
	if e.msg.refs == 0 {
		r.totalBytes -= e.msg.bytes
		if e.msg.body != nil {
			r.cachedBytes -= e.msg.bytes
			e.msg.body = nil
		}
	}
}

// end removes a session and its queue, and ends its connection, if any.
func (r *Router) end(s *session, reason Reason) {
	if s.conn != nil {
		s.conn.end(reason)
		s.conn = nil
	}
	if n := s.queue.Len(); n > 0 {
		r.stats.Dropped[reason] += uint64(n)
		r.cfg.Logger.Warn("session ended, queued messages dropped", "session", s.id, "messages", n, "bytes", s.bytes, "reason", string(reason))
	}
	for el := s.queue.Front(); el != nil; el = s.queue.Front() {
		r.remove(s, el)
	}
	for filter := range s.subs {
		r.index.remove(s, filter)
	}
	delete(r.sessions, s.id)
	erase(r.owners, s.owner, s)
	r.deleteSession(s)
	r.publishWill(s)
}

// endUnreadable ends the session of c, a message of which cannot be read from disk.
func (r *Router) endUnreadable(c *Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.s.conn == c {
		r.end(c.s, Unreadable)
	}
}

// publishWill publishes the pending will of s, if any, once.
func (r *Router) publishWill(s *session) {
	will := s.will
	s.will = nil
	if will == nil || r.stopping {
		return
	}
	if err := r.publish(s, &will.Message); err != nil {
		r.cfg.Logger.Warn("will not published", "session", s.id, "topic", will.Message.Topic, "error", err)
	}
}
