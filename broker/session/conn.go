package session

import (
	"fmt"
	"time"
)

// Connect is what a client says when it connects.
type Connect struct {
	// ID names the session. Owner is the identity it belongs to; an ID must always come
	// with the same owner.
	ID, Owner string
	// CleanStart ends a session of that ID first.
	CleanStart bool
	// Expiry is how many seconds the session outlives the connection; 0: it does not.
	Expiry uint32
	// ReceiveMaximum is how many messages the client takes before it acknowledges; 0: 65535.
	ReceiveMaximum uint16
	// Will is published unless the client leaves in good order. nil: none.
	Will *Will
}

// Will is a message that is published when a client is gone.
type Will struct {
	Message Message
	Delay   uint32 // seconds to wait for the client to come back
}

// Disconnect says how a client left.
type Disconnect struct {
	// Normal drops the client's will.
	Normal bool
	// Expiry, when not nil, replaces the session expiry of Connect.
	Expiry *uint32
}

// Conn is a session with a client on it. It is safe for concurrent use, but Next is meant
// for one goroutine.
type Conn struct {
	router *Router
	s      *session
	window int // messages the client takes before it acknowledges
	wake   chan struct{}
	ended  chan struct{}

	// Guarded by router.mu.
	why     Reason // of ended
	will    *Will
	acks    []ack // to the client, in the order of its messages
	unacked int   // messages sent and not acknowledged by the client
}

type ack struct {
	packetID uint16
	code     byte
	batch    uint64 // not before this batch is durable
}

// Packet is a packet for the client.
type Packet struct {
	// Message to publish; nil: acknowledge the client's message PacketID with Code.
	Message  *Message
	PacketID uint16
	Code     byte

	// For a message: how to publish it.
	QoS    byte
	Retain bool
	Dup    bool
	SubIDs []int
}

// Connect puts a client on its session and returns the connection, and whether there was such a
// session before. A client that is still on it is disconnected from it.
func (r *Router) Connect(c Connect) (l *Conn, present bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[c.ID]; s != nil && s.conn != nil {
		r.disconnect(s.conn, Disconnect{})
	}
	s := r.sessions[c.ID]
	if s != nil && c.CleanStart {
		r.end(s, CleanStart)
		s = nil
	}
	present = s != nil
	if s == nil {
		s = &session{id: c.ID, owner: c.Owner}
		s.reset()
		r.makeRoom(c.Owner)
		r.adopt(s)
	}
	s.will = nil // the client is back
	s.expiry = c.Expiry
	window := min(int(c.ReceiveMaximum), maxWindow)
	if c.ReceiveMaximum == 0 {
		window = maxWindow
	}
	l = &Conn{router: r, s: s, window: window, will: c.Will, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	s.conn, s.next = l, s.queue.Front()
	r.record(s)
	l.signal()
	return l, present
}

// makeRoom ends the session of owner that was left longest ago when there are too many.
// Callers hold r.mu.
func (r *Router) makeRoom(owner string) {
	if len(r.owners[owner]) < maxSessionsPerOwner {
		return
	}
	var oldest *session
	for s := range r.owners[owner] {
		if s.conn == nil && (oldest == nil || s.since.Before(oldest.since)) {
			oldest = s
		}
	}
	if oldest != nil {
		r.end(oldest, TooManySessions)
	}
}

// detach takes the client off s. Callers hold r.mu.
func (r *Router) detach(s *session) {
	delete(r.waiting, s.conn)
	s.conn, s.since = nil, r.cfg.Now()
	for el := s.queue.Front(); el != nil; {
		next := el.Next()
		if el.Value.(*entry).qos == 0 {
			r.stats.Dropped[Disconnected]++
			r.remove(s, el)
		}
		el = next
	}
}

// Disconnect takes the client off the session. The session ends when its expiry is 0. It
// does nothing when the session has left this connection.
func (l *Conn) Disconnect(d Disconnect) {
	l.router.mu.Lock()
	defer l.router.mu.Unlock()
	if l.s.conn == l {
		l.router.disconnect(l, d)
	}
}

// disconnect takes the client of l, which must be its session's connection, off. Callers hold r.mu.
func (r *Router) disconnect(l *Conn, d Disconnect) {
	s := l.s
	l.close(Disconnected)
	r.detach(s)
	if d.Expiry != nil {
		s.expiry = *d.Expiry
	}
	if !d.Normal && l.will != nil {
		s.will = l.will
		s.willAt = s.since.Add(time.Duration(l.will.Delay) * time.Second)
	}
	if s.expiry == 0 {
		r.end(s, Disconnected)
		return
	}
	if s.will != nil && s.will.Delay == 0 {
		r.publishWill(s)
	}
	r.record(s)
}

// Wake returns a channel that receives when Next may have something again.
func (l *Conn) Wake() <-chan struct{} { return l.wake }

// Done returns a channel that is closed when the session has left this connection.
func (l *Conn) Done() <-chan struct{} { return l.ended }

// EndReason returns why the connection has ended, or "".
func (l *Conn) EndReason() Reason {
	l.router.mu.Lock()
	defer l.router.mu.Unlock()
	return l.why
}

// close marks the connection as ended, once. Callers hold router.mu.
func (l *Conn) close(why Reason) {
	if l.why == "" {
		l.why = why
		close(l.ended)
	}
}

func (l *Conn) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Publish routes a message from the client. One of QoS 1 is acknowledged by a later Next.
// It fails with ErrReceiveMaximum when the client has too many unacknowledged.
func (l *Conn) Publish(m *Message, packetID uint16) error {
	r := l.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.QoS > 0 && len(l.acks) >= r.cfg.ReceiveMaximum {
		return ErrReceiveMaximum
	}
	a, before := ack{packetID: packetID}, r.writes
	if r.publish(l.s, m) != nil {
		a.code = 0x97 // quota exceeded
	}
	if m.QoS == 0 {
		return nil
	}
	if r.writes != before {
		a.batch = r.barrier()
	}
	l.acknowledge(a)
	return nil
}

// Refuse acknowledges a message of the client's, that was not published, with a reason of
// 0x80 or above, after the acknowledgements of the messages before it.
func (l *Conn) Refuse(packetID uint16, code byte) {
	l.router.mu.Lock()
	defer l.router.mu.Unlock()
	l.acknowledge(ack{packetID: packetID, code: code})
}

// acknowledge queues an acknowledgement. Callers hold router.mu.
func (l *Conn) acknowledge(a ack) {
	l.acks = append(l.acks, a)
	if len(l.acks) == 1 {
		l.signal()
	}
}

// Next returns what to write to the client next. false means nothing for now: wait for Wake
// or Ended. A message's body may come from the disk; failing to read it is an error, upon
// which the client should be disconnected so that it is tried again.
func (l *Conn) Next() (Packet, bool, error) {
	out, msg := l.next()
	if msg == nil {
		return out, out.PacketID != 0, nil
	}
	if out.Message == nil {
		m, err := l.router.read(msg.id)
		if err != nil {
			return Packet{}, false, fmt.Errorf("deliver a queued message of session %s: %w", l.s.id, err)
		}
		out.Message = m
	}
	return out, true, nil
}

// next returns an acknowledgement without, or a publication with, its shared message.
func (l *Conn) next() (Packet, *shared) {
	r, s := l.router, l.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != l {
		return Packet{}, nil
	}
	if len(l.acks) > 0 {
		if a := l.acks[0]; a.batch <= r.committed {
			l.acks = l.acks[1:]
			return Packet{PacketID: a.packetID, Code: a.code}, nil
		}
		r.waiting[l] = struct{}{}
	}
	for s.next != nil {
		el := s.next
		e := el.Value.(*entry)
		if e.qos > 0 && l.unacked >= l.window {
			return Packet{}, nil
		}
		if at := e.msg.expires; at > 0 && at <= r.cfg.Now().Unix() {
			r.stats.Dropped[MessageExpired]++
			r.remove(s, el)
			continue
		}
		s.next = el.Next()
		r.stats.Sent++
		out := Packet{Message: e.msg.body, QoS: e.qos, Retain: e.retain, SubIDs: e.subIDs}
		msg := e.msg
		if e.qos == 0 {
			r.remove(s, el)
			return out, msg
		}
		if out.Dup = e.packetID != 0; !out.Dup {
			e.packetID = s.freePacketID()
			s.ids[e.packetID] = el
		}
		e.sent = l
		l.unacked++
		out.PacketID = e.packetID
		return out, msg
	}
	return Packet{}, nil
}

// Ack records that the client has acknowledged a message; a code of 0x80 or above means that
// it did not want it, which ends its delivery all the same.
func (l *Conn) Ack(packetID uint16, code byte) {
	if code >= 0x80 {
		l.settle(packetID, RefusedByClient)
		return
	}
	l.settle(packetID, "")
}

// Drop gives up on a message that was not written because the client takes no packet as
// large as that.
func (l *Conn) Drop(packetID uint16) { l.settle(packetID, TooLarge) }

func (l *Conn) settle(packetID uint16, dropped Reason) {
	r, s := l.router, l.s
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.conn != l {
		return
	}
	if dropped != "" {
		r.stats.Dropped[dropped]++
	}
	el := s.ids[packetID]
	if el == nil {
		return
	}
	if el.Value.(*entry).sent == l {
		l.unacked--
	}
	r.remove(s, el)
	l.signal()
}

// freePacketID returns an identifier that no entry has. There always is one: no more than
// maxWindow entries have one at a time.
func (s *session) freePacketID() uint16 {
	for {
		s.last++
		if _, taken := s.ids[s.last]; s.last != 0 && !taken {
			return s.last
		}
	}
}
