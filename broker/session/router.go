package session

import (
	"container/list"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/workwire/workwire/broker/store"
)

// Bounds that no configuration needs to change. They keep one client that is allowed to
// connect from using up the broker.
const (
	// maxSubscriptions is how many filters one session may hold. The protocol needs two.
	maxSubscriptions = 1000
	// maxSessionsPerOwner is how many sessions one identity may have; a further one ends the
	// one that has been without a client for longest.
	maxSessionsPerOwner = 100
	// maxRetained and maxRetainedBytes bound the retained messages of all clients together.
	maxRetained      = 10_000
	maxRetainedBytes = 64 << 20
	// maxWindow is how many messages are sent to a client ahead of its acknowledgements,
	// also when it would take more.
	maxWindow = 1000
	// bodyCache is how many bytes of queued messages stay in memory although they are on disk.
	bodyCache = 64 << 20
)

// NeverExpires is the session expiry of MQTT that means just that.
const NeverExpires = 0xFFFFFFFF

// Errors that clients can cause.
var (
	// ErrQuota: the message cannot be retained or the subscription not be made, because the
	// broker's bounds are reached.
	ErrQuota = errors.New("a bound of the broker is reached")
	// ErrReceiveMaximum: the client sent more messages than it may before acknowledgement.
	ErrReceiveMaximum = errors.New("the client has more messages unacknowledged than the receive maximum allows")
)

// Config says how a router works.
type Config struct {
	// Store keeps sessions that outlive their connection. nil: everything ends with the process.
	Store *store.Store
	// MaxQueuedMessages and MaxQueuedBytes bound what waits for one session. Both must be
	// positive.
	MaxQueuedMessages int
	MaxQueuedBytes    int64
	// ReceiveMaximum bounds what one client has published and not seen acknowledged.
	ReceiveMaximum int
	// Now is the clock. nil: time.Now.
	Now func() time.Time
	// Logger is told about sessions that end with messages waiting. nil: slog.Default().
	Logger *slog.Logger
}

// Router holds every session. It is safe for concurrent use.
type Router struct {
	cfg Config

	mu        sync.Mutex // guards all below, and all state of sessions, connections and shared messages
	sessions  map[string]*session
	owners    map[string]map[*session]struct{}
	index     index
	retained  map[string]*Message
	retainedB int64 // bytes

	lastID    uint64             // of a shared message
	writes    uint64             // changes to messages given to the store
	committed uint64             // batch of the store
	waiting   map[*Conn]struct{} // those with an acknowledgement that waits for a batch
	fresh     []*shared          // on their way to the disk, oldest first
	cached    int64              // bytes of message bodies in memory
	barriers  []barrier          // who waits for a batch, smallest first
	stopping  bool
	stats     Stats
}

// New returns a router with the sessions that the store holds. Until Committed is called by
// the store's OnCommit, nothing counts as durable.
func New(cfg Config) (*Router, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	r := &Router{
		cfg:      cfg,
		sessions: map[string]*session{},
		owners:   map[string]map[*session]struct{}{},
		retained: map[string]*Message{},
		waiting:  map[*Conn]struct{}{},
		stats:    Stats{Dropped: map[Reason]uint64{}},
	}
	if cfg.Store == nil {
		return r, nil
	}
	return r, r.load()
}

// session is one client's state. It lives in Router.sessions.
type session struct {
	id, owner string
	expiry    uint32 // seconds without a client until it ends; NeverExpires
	subs      map[string]Subscription

	queue list.List                // of *entry, in order of arrival
	next  *list.Element            // the first that was not sent on this connection; nil: none
	ids   map[uint16]*list.Element // entries that have a packet identifier
	last  uint16                   // packet identifier given last
	bytes int64                    // of the queue

	conn  *Conn     // nil while no client is connected
	since time.Time // when the last client left

	recorded bool // the store knows the session

	will   *Will // of the client that left, still to be published
	willAt time.Time
}

func (s *session) durable() bool { return s.expiry > 0 }

// entry is a message in a session's queue.
type entry struct {
	msg    *shared
	qos    byte
	retain bool
	subIDs []int

	packetID uint16 // 0: never sent
	sent     *Conn  // the connection it was last sent on
	onDisk   bool
}

// shared is a message in one or more queues. Its body is dropped from memory when it is on
// disk and memory is short.
type shared struct {
	id       uint64
	bytes    int64
	body     *Message // nil: read it from the store
	refs     int      // entries
	diskRefs int      // entries that are on disk
	expires  int64    // as in Message
	pinned   bool     // an entry that is not on disk needs the body
	batch    uint64   // with which it is durable
}

// Committed records that the store's batches up to this one are durable. It is the store's
// OnCommit.
func (r *Router) Committed(batch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.committed = batch
	r.release(batch)
	for l := range r.waiting {
		l.signal()
	}
	clear(r.waiting)

	n := 0
	for n < len(r.fresh) && r.fresh[n].batch <= batch {
		if m := r.fresh[n]; r.cached > bodyCache && m.refs > 0 && !m.pinned {
			m.body = nil
			r.cached -= m.bytes
		}
		n++
	}
	r.fresh = append(r.fresh[:0:0], r.fresh[n:]...)
}

// Tick ends sessions whose time is over and publishes wills whose delay is. Call it about
// once a second; it looks at every session, which is cheap at that rate.
func (r *Router) Tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	for _, s := range r.sessions {
		if s.conn != nil {
			continue
		}
		if s.will != nil && !now.Before(s.willAt) {
			r.publishWill(s)
		}
		if s.expiry != NeverExpires && now.Sub(s.since) >= time.Duration(s.expiry)*time.Second {
			r.end(s, Expired)
		}
	}
}

// Stop keeps the wills of clients that are disconnected from now on from being published.
func (r *Router) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// target is a session that a message goes to.
type target struct {
	qos     byte
	retain  bool // keep the message's retain flag
	ids     []int
	noLocal bool
}

// publish retains and queues m for every matching session but origin, when that asked not
// to get its own. Callers hold r.mu.
func (r *Router) publish(origin *session, m *Message) error {
	r.stats.Received++
	if m.Retain {
		if err := r.retain(m); err != nil {
			return err
		}
	}
	targets := map[*session]target{}
	add := func(s *session, sub Subscription) {
		t, again := targets[s]
		t.qos = max(t.qos, sub.QoS)
		t.retain = t.retain || sub.RetainAsPublished
		t.noLocal = sub.NoLocal && (t.noLocal || !again)
		if sub.ID > 0 {
			t.ids = append(t.ids, sub.ID)
		}
		targets[s] = t
	}
	r.index.match(m.Topic, add, func(group map[*session]Subscription) {
		if s := pick(group); s != nil {
			add(s, group[s])
		}
	})
	msg := newShared(m)
	for s, t := range targets {
		if s == origin && t.noLocal {
			continue
		}
		r.enqueue(s, msg, &entry{qos: min(t.qos, m.QoS), retain: m.Retain && t.retain, subIDs: t.ids})
	}
	return nil
}

// pick chooses who gets a message of a shared subscription: the connected member with the
// least to do, or without one the member that has least waiting.
func pick(group map[*session]Subscription) *session {
	var best *session
	better := func(s *session) bool {
		if (s.conn != nil) != (best.conn != nil) {
			return s.conn != nil
		}
		if a, b := s.queue.Len(), best.queue.Len(); a != b {
			return a < b
		}
		return s.id < best.id
	}
	for s := range group {
		if best == nil || better(s) {
			best = s
		}
	}
	return best
}

func newShared(m *Message) *shared {
	return &shared{bytes: m.size(), body: m, expires: m.Expires}
}

// enqueue appends e for msg to the queue of s. Callers hold r.mu.
func (r *Router) enqueue(s *session, msg *shared, e *entry) {
	if r.sessions[s.id] != s {
		return // ended by a message before
	}
	if s.conn == nil && e.qos == 0 {
		return // MQTT: QoS 0 is for those who are there
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
		r.cached += msg.bytes
	}
	e.msg = msg
	msg.refs++
	s.bytes += msg.bytes
	r.stats.Queued++
	r.stats.QueuedBytes += msg.bytes
	el := s.queue.PushBack(e)
	if s.next == nil {
		s.next = el
	}
	if r.cfg.Store != nil && e.qos > 0 && s.durable() {
		r.keep(s, e)
	} else {
		msg.pinned = true
	}
	if s.conn != nil {
		s.conn.signal()
	}
}

// remove takes an entry out of its queue. Callers hold r.mu.
func (r *Router) remove(s *session, el *list.Element) {
	e := el.Value.(*entry)
	if s.next == el {
		s.next = el.Next()
	}
	s.queue.Remove(el)
	if e.packetID != 0 {
		delete(s.ids, e.packetID)
	}
	s.bytes -= e.msg.bytes
	r.stats.Queued--
	r.stats.QueuedBytes -= e.msg.bytes
	if e.onDisk {
		r.unkeep(s, e)
	}
	e.msg.refs--
	if e.msg.refs == 0 && e.msg.body != nil {
		r.cached -= e.msg.bytes
		e.msg.body = nil
	}
}

// end forgets a session and what waits for it. Its client, if any, is told to go. Callers
// hold r.mu.
func (r *Router) end(s *session, why Reason) {
	if s.conn != nil {
		s.conn.close(why)
		s.conn = nil
	}
	if n := s.queue.Len(); n > 0 {
		r.stats.Dropped[why] += uint64(n)
		r.cfg.Logger.Warn("session ended with messages waiting", "session", s.id, "messages", n, "bytes", s.bytes, "reason", string(why))
	}
	for el := s.queue.Front(); el != nil; el = s.queue.Front() {
		r.remove(s, el)
	}
	for filter := range s.subs {
		r.index.remove(s, filter)
	}
	delete(r.sessions, s.id)
	delete(r.owners[s.owner], s)
	if len(r.owners[s.owner]) == 0 {
		delete(r.owners, s.owner)
	}
	r.forget(s)
	r.publishWill(s)
}

// publishWill publishes the will that s still has, once. Callers hold r.mu.
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

// retain keeps or, when it is empty, deletes the retained message of a topic. Callers hold
// r.mu.
func (r *Router) retain(m *Message) error {
	var had int64
	old := r.retained[m.Topic]
	if old != nil {
		had = old.size()
	}
	if len(m.Payload) == 0 {
		if old != nil {
			delete(r.retained, m.Topic)
			r.retainedB -= had
			r.forgetRetained(m.Topic)
		}
		return nil
	}
	if old == nil && len(r.retained) >= maxRetained || r.retainedB-had+m.size() > maxRetainedBytes {
		return ErrQuota
	}
	r.retained[m.Topic] = m
	r.retainedB += m.size() - had
	r.keepRetained(m)
	return nil
}
