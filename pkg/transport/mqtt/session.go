package mqtt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/log"
	pahosession "github.com/eclipse/paho.golang/paho/session"
)

// session is the client's side of the MQTT session on one connection: the
// packets that wait for the broker's answer, bounded by the receive maximum
// that it announced, and the messages that wait for ours.
//
// Nothing of it outlives the connection. paho's own session keeps publishes
// that were not confirmed and sends them again on the next connection, when
// their Publish has long failed and the caller may have published something
// newer: the old one would come after it. Here a Publish that has returned is
// never sent again. (For QoS 1 a broker cannot tell the difference.) The
// broker's side of the session, subscriptions and queued messages, is kept.
type session struct {
	conn *conn
	acks *window
	lost chan struct{} // closed when the connection is lost

	mu      sync.Mutex
	ended   bool
	reason  error               // of the loss; the first one noted
	pending map[uint16]exchange // by packet identifier
	lastID  uint16              // packet identifier given out last
	slots   chan struct{}       // holds one token per publish under way; set on CONNACK
}

// exchange is a packet that waits for its answer.
type exchange struct {
	answer  chan<- packets.ControlPacket // has room for the one answer
	publish bool
}

var errLostUnknown = errors.New("connection closed")

func newSession() *session {
	return &session{acks: newWindow(), lost: make(chan struct{}), pending: make(map[uint16]exchange)}
}

// note takes err as the reason of the loss unless there is one already.
func (s *session) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		s.reason = err
	}
}

// isLost reports whether the connection is lost.
func (s *session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// lossReason is why the connection was lost.
func (s *session) lossReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		return errLostUnknown
	}
	return s.reason
}

// begin takes note of the broker's receive maximum.
func (s *session) begin(receiveMaximum uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slots = make(chan struct{}, receiveMaximum)
}

// end answers everything that waits with an empty packet, paho's sign that no
// answer will come.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	close(s.lost)
	for id, waiting := range s.pending {
		waiting.answer <- packets.ControlPacket{}
		delete(s.pending, id)
	}
}

// add gives p a packet identifier and promises that answer gets something. A
// publish waits until the broker takes another one.
func (s *session) add(ctx context.Context, p pahosession.Packet, answer chan<- packets.ControlPacket) error {
	publish := p.Type() == packets.PUBLISH
	if publish {
		s.mu.Lock()
		slots := s.slots
		s.mu.Unlock()
		select {
		case slots <- struct{}{}:
		case <-s.lost:
			return pahosession.ErrNoConnection
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.freeID()
	if err != nil {
		if publish {
			<-s.slots
		}
		return err
	}
	p.SetIdentifier(id)
	s.pending[id] = exchange{answer: answer, publish: publish}
	return nil
}

func (s *session) freeID() (uint16, error) {
	if s.ended {
		return 0, pahosession.ErrNoConnection
	}
	for range 65535 {
		s.lastID++
		if _, taken := s.pending[s.lastID]; s.lastID != 0 && !taken {
			return s.lastID, nil
		}
	}
	return 0, pahosession.ErrPacketIdentifiersExhausted
}

// answered passes the broker's answer on to who waits for it.
func (s *session) answered(id uint16, packet packets.ControlPacket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, known := s.pending[id]
	if !known {
		return
	}
	delete(s.pending, id)
	if waiting.publish {
		<-s.slots
	}
	waiting.answer <- packet
}

// drain waits until no publish is under way and keeps new ones from starting.
func (s *session) drain(ctx context.Context) {
	s.mu.Lock()
	slots := s.slots
	s.mu.Unlock()
	for range cap(slots) {
		select {
		case slots <- struct{}{}:
		case <-s.lost:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendAcks tells the broker which messages are held, as soon as they are, until
// the connection is lost.
func (s *session) sendAcks() {
	for {
		select {
		case <-s.lost:
			return
		case <-s.acks.ready:
		}
		s.conn.together(func() {
			for _, m := range s.acks.take() {
				s.acknowledge(m)
			}
		})
	}
}

// acknowledge sends the answer to m. When that fails, the connection is lost and
// m comes again.
func (s *session) acknowledge(m received) {
	if m.qos == 2 {
		_, _ = (&packets.Pubrec{PacketID: m.id, Properties: &packets.Properties{}}).WriteTo(s.conn)
		return
	}
	_, _ = (&packets.Puback{PacketID: m.id, Properties: &packets.Properties{}}).WriteTo(s.conn)
}

// sessions is the session manager that paho is given: it passes everything on to
// the session of the connection in use, which paho has one of at a time.
type sessions struct {
	current atomic.Pointer[session]
}

var _ pahosession.SessionManager = (*sessions)(nil)

// ConAckReceived begins the session of the connection.
func (m *sessions) ConAckReceived(_ io.Writer, _ *packets.Connect, answer *packets.Connack) error {
	receiveMaximum := uint16(65535)
	if answer.Properties != nil && answer.Properties.ReceiveMaximum != nil {
		receiveMaximum = *answer.Properties.ReceiveMaximum
	}
	if receiveMaximum == 0 {
		return errors.New("the broker announced a receive maximum of 0, which MQTT forbids")
	}
	m.current.Load().begin(receiveMaximum)
	return nil
}

// ConnectionLost ends it; said is the broker's DISCONNECT, if it sent one.
func (m *sessions) ConnectionLost(said *packets.Disconnect) error {
	s := m.current.Load()
	if said != nil {
		refusal := &refusedError{code: said.ReasonCode}
		if said.Properties != nil {
			refusal.text = said.Properties.ReasonString
		}
		s.note(refusal)
	}
	s.end()
	return nil
}

// AddToSession is asked before a packet that the broker answers is sent.
func (m *sessions) AddToSession(ctx context.Context, p pahosession.Packet, answer chan<- packets.ControlPacket) error {
	return m.current.Load().add(ctx, p, answer)
}

// PacketReceived takes the broker's answers and messages.
func (m *sessions) PacketReceived(p *packets.ControlPacket, messages chan<- *packets.Publish) error {
	s := m.current.Load()
	switch content := p.Content.(type) {
	case *packets.Puback:
		s.answered(content.PacketID, *p)
	case *packets.Suback:
		s.answered(content.PacketID, *p)
	case *packets.Unsuback:
		s.answered(content.PacketID, *p)
	case *packets.Publish:
		messages <- content // has room for the receive maximum that we announced
	case *packets.Pubrel:
		// QoS 2 is not subscribed with, yet the session may hold such messages from
		// an earlier client of this id.
		_, err := (&packets.Pubcomp{PacketID: content.PacketID, Properties: &packets.Properties{}}).WriteTo(s.conn)
		return err
	default:
		s.note(fmt.Errorf("the broker sent an unexpected %s packet", p.PacketType()))
		return s.conn.Close()
	}
	return nil
}

// Ack is called by paho when a message was handled; it is acknowledged when it
// is held, by window.
func (*sessions) Ack(*packets.Publish) error { return nil }

// Close does nothing: a session ends with its connection.
func (*sessions) Close() error { return nil }

// SetErrorLogger does nothing: errors are returned.
func (*sessions) SetErrorLogger(log.Logger) {}

// SetDebugLogger does nothing.
func (*sessions) SetDebugLogger(log.Logger) {}
