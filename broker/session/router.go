package session

import (
	"cmp"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/schedule"
	"github.com/workwire/workwire/pkg/runtime/statestore"
)

// Fixed limits. They keep a single client from exhausting the broker. Package packet limits filters
// and user properties.
const (
	maxSubscriptions    = 1000     // filters of all sessions of an identity; the protocol needs two a session
	maxSessionsPerOwner = 100      // of an identity; another one ends the session whose client disconnected first
	maxSessionID        = 512      // bytes; a longer one is not a key of the database, with the number of a message
	maxWindow           = 1000     // unacknowledged messages of a connection, even if the client accepts more
	bodyCache           = 64 << 20 // bytes of queued messages that are kept in memory although they are on disk
	entryBytes          = 256      // what a place in a queue counts
	propertyBytes       = 32       // what a user property counts besides its text
)

// NeverExpires is the session expiry of a session that never expires (MQTT 5, 3.1.2.11.2).
const NeverExpires = 0xFFFFFFFF

// Errors that clients can cause.
var (
	// ErrQuota means that a fixed limit prevents a subscription.
	ErrQuota = errors.New("a limit of the broker is reached")
	// ErrShare means that the publisher has more than its share of a queue.
	ErrShare = errors.New("the publisher has more than its share of a queue")
	// ErrReceiveMaximum means that too many messages of the client are not acknowledged yet.
	ErrReceiveMaximum = errors.New("the client has more unacknowledged messages than the receive maximum allows")
	// ErrEnded means that the session has ended, or that another client has it.
	ErrEnded = errors.New("the session of the connection has ended")
)

// Config is the configuration of a [Router].
type Config struct {
	// Store keeps sessions that outlive their connection. nil keeps all sessions in memory.
	Store *statestore.Store
	Limits
	// Shares reports whether publishers have shares of the queues of an owner: one that has more
	// than an eighth of a queue that is more than half full is refused. nil means none.
	Shares func(owner string) bool
	// ReceiveMaximum limits the messages that one client has published and that are not yet
	// acknowledged; required.
	ReceiveMaximum int
	// Now returns the current time; default time.Now.
	Now func() time.Time
	// Logger warns of sessions that end with queued messages; default slog.Default().
	Logger *slog.Logger
}

// Router holds all sessions and routes messages to them. It is safe for concurrent use.
type Router struct {
	cfg Config

	mu         sync.Mutex // guards all below, the limits in cfg, and the state of sessions, connections and shared messages
	sessions   map[string]*session
	owners     map[string]map[*session]struct{}
	publishers map[string]held // what is in all queues, by the identity that published it
	index      index

	lastID      uint64             // of a shared message
	writes      uint64             // number of changes to messages passed to the store
	ends        uint64             // batch that makes all ends of stored sessions durable
	committed   uint64             // last batch that the store has committed
	ackWaiters  map[*Conn]struct{} // connections with an acknowledgement that waits for a batch
	uncommitted []*shared          // messages passed to the store, oldest first
	unwritten   int64              // bytes of those of them that are still to be written, with their entries
	cachedBytes int64              // size of the message bodies in memory
	totalBytes  int64              // see Config.MaxTotalBytes
	totalMemory int64              // see Config.MaxTotalMemory
	barriers    []barrier          // waiters for a batch, by ascending batch
	expiring    schedule.Schedule[*expiringEntry]
	stopping    bool
	stats       Stats
}

// New returns a router with the sessions in the store. It does not check cfg: package broker does. The
// error for a store whose content cannot be read wraps [statestore.ErrDamaged]. The store's
// OnCommit must call [Router.Committed]; nothing is durable before.
func New(cfg Config) (*Router, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Router{
		cfg:        cfg,
		sessions:   map[string]*session{},
		owners:     map[string]map[*session]struct{}{},
		publishers: map[string]held{},
		ackWaiters: map[*Conn]struct{}{},
		stats:      Stats{Dropped: map[Reason]uint64{}},
	}
	if cfg.Store == nil {
		return r, nil
	}
	return r, r.load()
}

// Committed records that the store's batches up to batch are durable. The store's OnCommit calls
// it.
func (r *Router) Committed(batch uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.committed = batch
	r.releaseBarriers(batch)
	for c := range r.ackWaiters {
		c.wake()
	}
	clear(r.ackWaiters)

	n := 0
	for ; n < len(r.uncommitted) && r.uncommitted[n].batch <= batch; n++ {
		m := r.uncommitted[n]
		r.written(m)
		if m.refs > 0 && !m.pinned {
			r.limitCache(m)
		}
	}
	r.uncommitted = slices.Clone(r.uncommitted[n:])
}

// Limits are the limits of a [Config] that can change while the router runs.
type Limits struct {
	// MaxQueuedMessages and MaxQueuedBytes limit the queue of one session; required.
	MaxQueuedMessages int
	MaxQueuedBytes    int64
	// MaxTotalBytes limits all queues together: the bytes of their messages, each counted once, and
	// 256 for each place in a queue. The largest session of the owner with the largest queues is
	// ended first. 0 means no limit.
	MaxTotalBytes int64
	// MaxQueuedMemory limits what the queue of one session has in memory only: QoS 0, and all of a
	// session that ends with its connection, or without a Store. MaxTotalMemory limits that of all
	// sessions together, each message counted once, and 256 for each place; and what waits for the Store, counted likewise,
	// beyond which QoS 1 messages are refused until it has written. 0 means no limit.
	MaxQueuedMemory, MaxTotalMemory int64
	// MaxExpiry and MaxWillDelay limit what clients may ask for, in seconds; 0 means no limit.
	MaxExpiry, MaxWillDelay uint32
}

// SetLimits replaces the limits. Sessions that exceed those of one queue are ended by their next
// message, those that exceed that of all queues at once.
func (r *Router) SetLimits(l Limits) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cfg.Limits = l
	r.limitTotal()
}

// Tick ends expired sessions, drops expired messages, and publishes delayed wills that are due. Call
// it about once a second: it visits every session.
func (r *Router) Tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.cfg.Now()
	r.dropExpired(now)
	var due []*session
	for _, s := range r.sessions {
		if s.conn == nil && (s.will != nil && !now.Before(s.willAt) || s.expired(now)) {
			due = append(due, s)
		}
	}
	for _, s := range byID(due) {
		if r.sessions[s.id] != s {
			continue // the will of another one has ended it
		}
		r.settle(s, now)
	}
}

// byID sorts sessions, so that the same calls have the same effects whatever order a map has them in.
func byID(sessions []*session) []*session {
	slices.SortFunc(sessions, func(a, b *session) int { return strings.Compare(a.id, b.id) })
	return sessions
}

// Stop prevents the publication of wills from now on. Call it before the broker disconnects its
// clients to shut down.
func (r *Router) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// target holds how a message is delivered to a session: its matching subscriptions combined.
type target struct {
	qos     byte
	noLocal bool
}

// publish queues m for every matching session. origin is left out if all its matching subscriptions
// are NoLocal. It reports whether there are such sessions, and returns ErrShare if one did not take the
// message; others have it then. Callers hold r.mu.
func (r *Router) publish(origin *session, m *Message) (matched bool, err error) {
	r.stats.Received++
	targets := map[*session]target{}
	add := func(s *session, sub Subscription) {
		t, seen := targets[s]
		t.qos = max(t.qos, sub.QoS)
		t.noLocal = sub.NoLocal && (t.noLocal || !seen)
		targets[s] = t
	}
	r.index.match(m.Topic, add, func(group map[*session]Subscription) {
		s := chooseMember(group)
		add(s, group[s])
	})
	msg, publisher := newShared(m), ""
	if origin != nil {
		publisher = origin.owner
	}
	for _, s := range byID(slices.Collect(maps.Keys(targets))) {
		t := targets[s]
		if s == origin && t.noLocal {
			continue
		}
		matched = true
		if msg.refs == 0 { // the queues that it was in have ended to make room for it, and it has gone with them
			msg = newShared(m)
		}
		e := &entry{qos: min(t.qos, m.QoS), state: waiting, publisher: publisher}
		err = cmp.Or(r.enqueue(s, msg, e), err)
	}
	return matched, err
}

// chooseMember returns the member of a shared subscription that receives the next message: a
// connected member before others, then the one with the shortest queue.
func chooseMember(group map[*session]Subscription) *session {
	disconnected := func(s *session) int {
		if s.conn == nil {
			return 1
		}
		return 0
	}
	return slices.MinFunc(slices.Collect(maps.Keys(group)), func(a, b *session) int {
		return cmp.Or(disconnected(a)-disconnected(b), a.queue.Len()-b.queue.Len(), strings.Compare(a.id, b.id))
	})
}
