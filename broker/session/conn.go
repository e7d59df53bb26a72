package session

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
)

// Connect holds the fields of a client's CONNECT packet.
type Connect struct {
	ID             string // names the session; required
	Owner          string // the identity that the session belongs to; constant for an ID
	Credential     string // what the client authenticated with, for Router.Revoke; opaque
	CleanStart     bool   // ends an existing session with this ID first
	Expiry         uint32 // seconds for which the session outlives its connection
	ReceiveMaximum uint16 // unacknowledged messages that the client accepts; 0 means 65535
	Will           *Will  // published unless the client disconnects normally; nil means no will
	// Wake is called when Next may have another packet, and when the connection has ended: at once, too, and often without a
	// reason. It must not block, and must not call this package. nil: nobody is told.
	Wake func()
}

// Will is a message that is published when its client is gone.
type Will struct {
	Message Message
	Delay   uint32  // seconds to wait for the client to reconnect
	Expiry  *uint32 // seconds after which the published message expires; nil: never
}

// Disconnect holds how a client disconnected.
type Disconnect struct {
	Normal bool    // discards the client's will
	Expiry *uint32 // if not nil, replaces the session expiry of Connect
}

// Conn is a client's connection to its session. It is safe for concurrent use, but only one
// goroutine may call Next.
type Conn struct {
	router *Router
	s      *session
	window int // maximum number of messages that the client has not acknowledged
	wake   func()
	ended  atomic.Pointer[Reason] // why; nil until then

	// Guarded by router.mu.
	will *Will
	acks []ack // acknowledgements for the client, in the order of its messages
}

type ack struct {
	packetID uint16
	code     byte
	batch    uint64 // send it once the store has committed this batch
}

// quotaExceeded is the reason code for a client that is to publish its message again later.
const quotaExceeded = 0x97

// Packet is a PUBLISH or a PUBACK for the client.
type Packet struct {
	// Message is the message to publish. If it is nil, the packet acknowledges the client's message
	// PacketID with Code.
	Message  *Message
	PacketID uint16
	Code     byte

	// Fields of a PUBLISH.
	QoS byte
	Dup bool
}

// Connect connects a client to its session and reports whether the session existed before. The
// previous connection of the session, if any, is ended.
func (r *Router) Connect(c Connect) (conn *Conn, present bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sessions[c.ID]
	switch {
	case s == nil:
	case s.conn != nil:
		r.disconnect(s.conn, Disconnect{})
	default: // Tick comes once a second only
		r.settle(s, r.cfg.Now())
	}
	s = r.sessions[c.ID] // unless that has ended it
	if s != nil && c.CleanStart {
		r.end(s, CleanStart)
		s = nil
	}
	present = s != nil
	if s == nil {
		r.limitSessions(c.Owner)
		s = r.addSession(c.ID, c.Owner)
	}
	s.will = nil // the client has reconnected
	s.expiry, s.connectedAt, s.credential = r.limitExpiry(s, c.Expiry), r.cfg.Now(), c.Credential
	if c.Wake == nil {
		c.Wake = func() {}
	}
	window := min(cmp.Or(int(c.ReceiveMaximum), maxWindow), maxWindow)
	conn = &Conn{router: r, s: s, window: window, will: c.Will, wake: c.Wake}
	s.conn, s.next = conn, s.queue.Front()
	r.storeSession(s)
	conn.wake()
	return conn, present
}

// limitExpiry returns the session expiry that s gets if its client asks for expiry. Callers hold
// r.mu.
func (r *Router) limitExpiry(s *session, expiry uint32) uint32 {
	if len(s.id) > maxSessionID {
		return 0 // the database could not keep it
	}
	if r.cfg.MaxExpiry > 0 {
		return min(expiry, r.cfg.MaxExpiry)
	}
	return expiry
}

// limitSessions ends a session of owner if owner has the maximum number of sessions: the one whose
// client disconnected first, or if all are connected, the one whose client connected first. Callers
// hold r.mu.
func (r *Router) limitSessions(owner string) {
	if len(r.owners[owner]) < maxSessionsPerOwner {
		return
	}
	r.end(slices.MinFunc(slices.Collect(maps.Keys(r.owners[owner])), func(a, b *session) int {
		if (a.conn == nil) != (b.conn == nil) {
			if a.conn == nil {
				return -1
			}
			return 1
		}
		since := a.connectedAt.Compare(b.connectedAt)
		if a.conn == nil {
			since = a.disconnectedAt.Compare(b.disconnectedAt)
		}
		return cmp.Or(since, strings.Compare(a.id, b.id))
	}), TooManySessions)
}

// Disconnect ends the connection, and the session if its expiry is 0. It does nothing if the
// connection has ended already.
func (c *Conn) Disconnect(d Disconnect) {
	c.router.mu.Lock()
	defer c.router.mu.Unlock()
	if c.s.conn == c {
		c.router.disconnect(c, d)
	}
}

// Expiry returns the session expiry in seconds, which may be less than the client asked for.
func (c *Conn) Expiry() uint32 {
	c.router.mu.Lock()
	defer c.router.mu.Unlock()
	return c.s.expiry
}

// EndReason returns why the connection has ended, or "" if it has not.
func (c *Conn) EndReason() Reason {
	if reason := c.ended.Load(); reason != nil {
		return *reason
	}
	return ""
}

// end marks the connection as ended, once. Callers hold router.mu.
func (c *Conn) end(reason Reason) {
	if c.ended.CompareAndSwap(nil, &reason) {
		c.wake()
	}
}

// Publish routes a message from the client. A later Next acknowledges a QoS 1 message. Publish
// returns ErrReceiveMaximum if the client has too many unacknowledged messages, and ErrEnded if the
// connection has ended.
func (c *Conn) Publish(m *Message, packetID uint16) error {
	r := c.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.s.conn != c {
		return ErrEnded
	}
	if m.QoS > 0 && len(c.acks) >= r.cfg.ReceiveMaximum {
		return ErrReceiveMaximum
	}
	if limit := r.cfg.MaxTotalMemory; m.QoS > 0 && limit > 0 && r.unwritten > limit { // the disk is full, say
		r.stats.Refused++
		c.acknowledge(ack{packetID: packetID, code: quotaExceeded})
		return nil
	}
	before := r.writes
	matched, err := r.publish(c.s, m)
	// A session that has ended must be gone from disk: it could be back after a crash, without this message.
	a := ack{packetID: packetID, batch: r.ends}
	switch {
	case err != nil:
		a.code = quotaExceeded
	case !matched:
		a.code = 0x10 // no matching subscribers
	}
	if m.QoS == 0 {
		return nil
	}
	if r.writes != before {
		a.batch = r.barrier()
	}
	c.acknowledge(a)
	return nil
}

// Refuse acknowledges a message of the client that was not published, with a reason code: 0x80 or
// above, or 0 if the broker itself took it. Acknowledgements keep the order of the client's messages. Refuse returns ErrReceiveMaximum
// if the client has too many unacknowledged messages, and ErrEnded if the connection has ended.
func (c *Conn) Refuse(packetID uint16, code byte) error {
	c.router.mu.Lock()
	defer c.router.mu.Unlock()
	if c.s.conn != c {
		return ErrEnded
	}
	if len(c.acks) >= c.router.cfg.ReceiveMaximum {
		return ErrReceiveMaximum
	}
	c.acknowledge(ack{packetID: packetID, code: code})
	return nil
}

// acknowledge queues an acknowledgement. Callers hold router.mu.
func (c *Conn) acknowledge(a ack) {
	c.acks = append(c.acks, a)
	if len(c.acks) == 1 {
		c.wake()
	}
}

// Next returns the next packet for the client. If ok is false there is none until Connect.Wake is called
// again. Next may read the message from disk. If that fails, it ends the session, so that the client
// resyncs, and returns an error.
func (c *Conn) Next() (p Packet, ok bool, err error) {
	p, msg := c.next()
	if msg == nil {
		return p, p.PacketID != 0, nil
	}
	if p.Message == nil {
		if p.Message, err = c.router.readMessage(msg.id); err != nil {
			c.router.endUnreadable(c)
			return Packet{}, false, fmt.Errorf("deliver a queued message of session %s: %w", c.s.id, err)
		}
	}
	return p, true, nil
}

// next returns the next packet. For a PUBLISH it returns the shared message too, and leaves
// Packet.Message nil if the message must be read from disk.
func (c *Conn) next() (Packet, *shared) {
	r, s := c.router, c.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != c {
		return Packet{}, nil
	}
	if len(c.acks) > 0 {
		if a := c.acks[0]; a.batch <= r.committed {
			c.acks = c.acks[1:]
			return Packet{PacketID: a.packetID, Code: a.code}, nil
		}
		r.ackWaiters[c] = struct{}{}
	}
	for s.next != nil {
		el := s.next
		e := el.Value.(*entry)
		if e.qos > 0 && s.inFlight >= c.window {
			return Packet{}, nil
		}
		if at := e.msg.expires; at > 0 && at <= r.cfg.Now().Unix() && r.move(s, el, expired) == gone {
			continue
		}
		s.next = el.Next()
		r.stats.Sent++
		p := Packet{Message: e.msg.body, QoS: e.qos, Dup: e.state == unanswered}
		r.move(s, el, sent)
		p.PacketID = e.packetID
		return p, e.msg
	}
	return Packet{}, nil
}

// Ack completes the delivery of a message that the client has acknowledged, or refused with a code
// of 0x80 or above.
func (c *Conn) Ack(packetID uint16, code byte) {
	var dropped Reason
	if code >= 0x80 {
		dropped = RefusedByClient
	}
	c.complete(packetID, dropped)
}

// Drop discards a message that exceeds the client's maximum packet size.
func (c *Conn) Drop(packetID uint16) { c.complete(packetID, TooLarge) }

// complete removes a message from the queue. dropped is "" if the client has received it.
func (c *Conn) complete(packetID uint16, dropped Reason) {
	r, s := c.router, c.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != c {
		return
	}
	if dropped != "" {
		r.stats.Dropped[dropped]++
	}
	if el := s.byPacketID[packetID]; el != nil {
		r.move(s, el, answered)
		c.wake()
	}
}

// freePacketID returns an unused packet identifier. There always is one, since at most maxWindow
// entries have an identifier.
func (s *session) freePacketID() uint16 {
	for {
		s.lastPacketID++
		if _, taken := s.byPacketID[s.lastPacketID]; s.lastPacketID != 0 && !taken {
			return s.lastPacketID
		}
	}
}
