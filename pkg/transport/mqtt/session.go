package mqtt

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/log"
	pahosession "github.com/eclipse/paho.golang/paho/session"
	"k8s.io/utils/ptr"
)

// session is the client's part of the MQTT session on one connection: the packets that wait for an
// answer of the broker, at most its receive maximum, and the messages that are not acknowledged.
//
// It ends with the connection, unlike paho's, which sends unacknowledged publishes again on the
// next one. By then their Publish has returned an error, and the caller may have published
// something newer, which they would overwrite. The broker's part of the session, its subscriptions
// and queued messages, is kept.
type session struct {
	conn   *bufferedConn
	window *ackWindow
	lost   chan struct{} // closed when the connection is lost

	slots chan struct{} // contains a token per publish in flight; set on CONNACK

	mu      sync.Mutex
	reason  error                    // of the loss; the first one
	pending map[uint16]pendingPacket // by packet identifier
	lastID  uint16                   // the last packet identifier
}

var _ pahosession.SessionManager = (*session)(nil)

// pendingPacket is a packet that waits for its answer.
type pendingPacket struct {
	answer  chan<- packets.ControlPacket // buffered
	publish bool
}

var errLostUnknown = errors.New("connection closed")

func newSession(d dialed) *session {
	s := &session{window: newAckWindow(), lost: make(chan struct{}), pending: make(map[uint16]pendingPacket)}
	s.conn = &bufferedConn{Conn: d.secured, raw: d.raw, reader: bufio.NewReaderSize(d.secured, readBuffer), onError: s.setLossReason}
	return s
}

// setLossReason sets the reason of the loss, unless it is set.
func (s *session) setLossReason(err error) {
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

// lossReason returns why the connection was lost.
func (s *session) lossReason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason == nil {
		return errLostUnknown
	}
	return s.reason
}

// ConAckReceived limits the number of publishes in flight to the broker's receive maximum.
func (s *session) ConAckReceived(_ io.Writer, _ *packets.Connect, answer *packets.Connack) error {
	receiveMaximum := ptr.Deref(answer.Properties.ReceiveMaximum, 65535)
	if receiveMaximum == 0 {
		return errors.New("the broker announced a receive maximum of 0, which is invalid")
	}
	s.slots = make(chan struct{}, receiveMaximum)
	return nil
}

// ConnectionLost ends the session: it answers all pending packets with an empty packet, which tells paho
// that no answer will come. disconnect is the broker's DISCONNECT, nil if it sent none.
func (s *session) ConnectionLost(disconnect *packets.Disconnect) error {
	if disconnect != nil {
		s.setLossReason(&refusedError{disconnect.ReasonCode, disconnect.Properties.ReasonString})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isLost() {
		return nil
	}
	close(s.lost)
	for id, waiting := range s.pending {
		waiting.answer <- packets.ControlPacket{}
		delete(s.pending, id)
	}
	return nil
}

// AddToSession assigns a packet identifier to p, which the broker answers. It guarantees that answer
// receives a packet. A publish waits until fewer than the receive maximum are in flight.
func (s *session) AddToSession(ctx context.Context, p pahosession.Packet, answer chan<- packets.ControlPacket) error {
	publish := p.Type() == packets.PUBLISH
	if publish {
		select {
		case s.slots <- struct{}{}:
		case <-s.lost:
			return pahosession.ErrNoConnection
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.nextID()
	if err != nil {
		if publish {
			<-s.slots
		}
		return err
	}
	p.SetIdentifier(id)
	s.pending[id] = pendingPacket{answer: answer, publish: publish}
	return nil
}

func (s *session) nextID() (uint16, error) {
	if s.isLost() {
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

// complete passes the broker's answer to the packet with this identifier.
func (s *session) complete(id uint16, packet packets.ControlPacket) {
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

// drain waits until no publish is in flight, and prevents new ones.
func (s *session) drain(ctx context.Context) {
	for range cap(s.slots) {
		select {
		case s.slots <- struct{}{}:
		case <-s.lost:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendAcks sends acknowledgements until the connection is lost.
func (s *session) sendAcks() {
	for {
		select {
		case <-s.lost:
			return
		case <-s.window.ready:
		}
		s.conn.batch(func() {
			for _, m := range s.window.takeAcked() {
				s.acknowledge(m)
			}
		})
	}
}

// acknowledge sends the acknowledgement of m. If that fails, the connection is lost and m is
// delivered again.
func (s *session) acknowledge(m unackedMessage) {
	var ack io.WriterTo = &packets.Puback{PacketID: m.id, Properties: &packets.Properties{}}
	if m.qos == 2 {
		ack = &packets.Pubrec{PacketID: m.id, Properties: &packets.Properties{}}
	}
	_, _ = ack.WriteTo(s.conn)
}

// PacketReceived handles answers and messages of the broker.
func (s *session) PacketReceived(p *packets.ControlPacket, messages chan<- *packets.Publish) error {
	switch content := p.Content.(type) {
	case *packets.Puback, *packets.Suback, *packets.Unsuback:
		s.complete(p.PacketID(), *p)
	case *packets.Publish:
		messages <- content // buffered for our receive maximum
	case *packets.Pubrel:
		// The session can contain messages with QoS 2 from an earlier client with this id.
		_, err := (&packets.Pubcomp{PacketID: content.PacketID, Properties: &packets.Properties{}}).WriteTo(s.conn)
		return err
	default:
		s.setLossReason(fmt.Errorf("the broker sent an unexpected %s packet", p.PacketType()))
		return s.conn.Close()
	}
	return nil
}

// Ack does nothing: ackWindow acknowledges messages.
func (*session) Ack(*packets.Publish) error { return nil }

// Close does nothing: a session ends with its connection.
func (*session) Close() error { return nil }

// SetErrorLogger does nothing: errors are returned.
func (*session) SetErrorLogger(log.Logger) {}

// SetDebugLogger does nothing.
func (*session) SetDebugLogger(log.Logger) {}
