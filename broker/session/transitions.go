package session

import (
	"container/list"
	"time"
)

// session is the state of one client. It is connected while it has a conn, and in Router.sessions until it ends:
//
//	        Connect             the connection ends, expiry > 0
//	(none) ─────────▶ connected ────────────────────────────────▶ disconnected
//	                    │  ▲                                        │   │
//	                    │  └──────────────── Connect ───────────────┘   │ Tick, Connect: it has expired
//	                    │                                               ▼
//	                    └─────────────────────────────────────────▶   ended
//	                          the connection ends, expiry 0
//
// Connect first ends the connection of a client that is there, which is taken over, and with CleanStart the session. The other
// Reasons end a session whether it is connected or not. The will of a client that has not left in good order is published
// once its delay is over, unless the client is back by then, and at the latest when the session ends.
type session struct {
	id, owner string
	expiry    uint32 // seconds without a connection until it ends; or NeverExpires
	subs      map[string]Subscription

	queue        list.List                // of *entry, in order of arrival
	next         *list.Element            // the first entry not sent on this connection; nil: none
	byPacketID   map[uint16]*list.Element // entries that have a packet identifier
	lastPacketID uint16
	inFlight     int               // entries in flight
	queued       amount            // in the queue, with the places in it
	memory       int64             // bytes of that that are in memory only
	publishers   map[string]amount // of that, by the identity that published it

	conn           *Conn     // nil while no client is connected
	connectedAt    time.Time // when the last client connected
	disconnectedAt time.Time // when the last client disconnected
	credential     string    // of the last client, see Connect.Credential

	stored     bool   // the session is in the store
	subscribed uint64 // batch of the store that makes the subscriptions durable

	will   *Will // of the last client, not yet published
	willAt time.Time
}

// durable reports whether the session outlives its connection.
func (s *session) durable() bool { return s.expiry > 0 }

// expired reports whether the session, which has no connection, ends.
func (s *session) expired(now time.Time) bool {
	return s.expiry != NeverExpires && now.Sub(s.disconnectedAt) >= time.Duration(s.expiry)*time.Second
}

// addSession adds a new session. Callers hold r.mu, as for all functions below.
func (r *Router) addSession(id, owner string) *session {
	s := &session{
		id: id, owner: owner, subs: map[string]Subscription{}, byPacketID: map[uint16]*list.Element{},
		publishers: map[string]amount{},
	}
	r.sessions[id] = s
	insert(r.owners, owner, s, struct{}{})
	return s
}

// disconnect ends c, which must be the current connection of its session. Callers hold r.mu.
func (r *Router) disconnect(c *Conn, d Disconnect) {
	s := c.s
	c.end(Disconnected)
	delete(r.ackWaiters, c)
	s.conn, s.disconnectedAt = nil, r.cfg.Now()
	for el := s.queue.Front(); el != nil; {
		next := el.Next() // before el leaves the queue
		r.move(s, el, disconnected)
		el = next
	}
	if d.Expiry != nil {
		s.expiry = r.limitExpiry(s, *d.Expiry)
	}
	if !d.Normal && c.will != nil {
		s.will = c.will
		if limit := r.cfg.MaxWillDelay; limit > 0 {
			s.will.Delay = min(s.will.Delay, limit)
		}
		s.willAt = s.disconnectedAt.Add(time.Duration(s.will.Delay) * time.Second)
	}
	if s.expiry == 0 {
		r.end(s, Disconnected)
		return
	}
	if s.will != nil && s.will.Delay == 0 {
		r.publishWill(s)
	}
	r.storeSession(s)
}

// settle publishes the will of s, which has no connection, if it is due, and ends s if it has expired. Callers hold r.mu.
func (r *Router) settle(s *session, now time.Time) {
	if s.will != nil && !now.Before(s.willAt) {
		r.publishWill(s)
	}
	if s.expired(now) {
		r.end(s, Expired)
	}
}

// end removes a session and its queue, ends its connection, if any, and publishes its will unless
// the access of its client was revoked.
func (r *Router) end(s *session, reason Reason) {
	if s.conn != nil {
		s.will = s.conn.will
		s.conn.end(reason)
		s.conn = nil
	}
	if reason == Revoked {
		s.will = nil
	}
	if n := s.queue.Len(); n > 0 {
		r.stats.Dropped[reason] += uint64(n)
		r.cfg.Logger.Warn("session ended, queued messages dropped", "session", s.id, "messages", n, "bytes", s.queued.bytes, "reason", string(reason))
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
	if will.Expiry != nil {
		will.Message.Expires = r.cfg.Now().Unix() + int64(*will.Expiry)
	}
	if _, err := r.publish(s, &will.Message); err != nil {
		r.cfg.Logger.Warn("will not published", "session", s.id, "topic", will.Message.Topic, "error", err)
	}
}

// state is where a message is in the queue of a session:
//
//	          disconnected           sent             answered
//	started ───────────────▶ waiting ─────▶ inFlight ──────────▶ gone
//	   │                       │               ▲│▲                ▲▲
//	   └────────── sent ───────┼───────────────┘││ sent, with DUP ││ answered, expired
//	                           │   disconnected ▼│                ││
//	                           │             unanswered ──────────┘│
//	                           └────────────── expired ────────────┘
//
// A message of QoS 0 is gone once it is sent, and when the connection ends. All are gone when the session ends.
type state uint8

const (
	_          state = iota // in transitions: no move
	waiting                 // it has not been sent
	started                 // the same, but its delivery has started, so that it does not expire (see ready)
	inFlight                // it was sent on this connection
	unanswered              // it was sent on a former connection, and is sent again
	gone                    // it has left the queue
)

// trigger moves a message to another state.
type trigger uint8

const (
	sent         trigger = iota // Next has returned it
	answered                    // the client has acknowledged or refused it, or cannot receive it
	expired                     // its expiry interval has elapsed
	disconnected                // the connection has ended
	triggers
)

// transitions is the table of all moves, by QoS. A trigger that a state does not name leaves the message where it is.
var transitions = [2][gone][triggers]state{
	{
		waiting: {sent: gone, expired: gone, disconnected: gone},
		started: {sent: gone, disconnected: gone},
	},
	{
		waiting:    {sent: inFlight, expired: gone},
		started:    {sent: inFlight, disconnected: waiting},
		inFlight:   {answered: gone, disconnected: unanswered},
		unanswered: {sent: inFlight, answered: gone, expired: gone},
	},
}

// losses are the triggers by which a message is dropped.
var losses = [triggers]Reason{expired: MessageExpired, disconnected: Disconnected}

// move moves the message at el by t, and returns where it is then.
func (r *Router) move(s *session, el *list.Element, t trigger) state {
	e := el.Value.(*entry)
	to := transitions[e.qos][e.state][t]
	if to == 0 {
		return e.state
	}
	if e.state == inFlight {
		s.inFlight--
	}
	e.state = to
	switch to {
	case inFlight:
		s.inFlight++
		if e.packetID == 0 {
			e.packetID = s.freePacketID()
			s.byPacketID[e.packetID] = el
		}
	case gone:
		if reason := losses[t]; reason != "" {
			r.stats.Dropped[reason]++
		}
		r.remove(s, el)
	}
	return to
}
