package broker

import (
	"log/slog"
	"sync"
	"time"

	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/broker/session"
)

const (
	flushSize   = 32 << 10 // bytes that are collected for one write
	largeOutput = 64 << 10 // a larger buffer is not used again
)

// outputs are the buffers in which senders collect packets, used only while there are some.
var outputs = sync.Pool{New: func() any { return new([]byte) }}

// sending says whether a goroutine sends. A connection at rest has none, and so no stack of it: there are thousands. The zero
// sending starts none: nothing is sent before the CONNACK.
type sending struct {
	mu       sync.Mutex
	isOpen   bool          // one may be started
	running  bool          // one runs
	again    bool          // it was woken since it began, or since the last rest
	awaiting chan struct{} // closed when the running one ends; nil: nobody waits for that
}

// open says that goroutines may be started from now on, and that the caller starts the first.
func (s *sending) open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen, s.running = true, true
}

// wake reports whether the caller has to start a goroutine.
func (s *sending) wake() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOpen || s.running {
		s.again = true
		return false
	}
	s.running = true
	return true
}

// rest reports whether the goroutine is to end: nobody has woken it since it began, or since the last rest.
func (s *sending) rest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.again = s.again, false
	s.told()
	return !s.running
}

// stop says that the goroutine ends, and that none is started from now on.
func (s *sending) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen, s.running = false, false
	s.told()
}

// told tells who waits for the end of the running goroutine. Callers hold mu.
func (s *sending) told() {
	if !s.running && s.awaiting != nil {
		close(s.awaiting)
	}
}

// end says that none is started from now on. It returns what is closed when the running one ends; nil if none runs.
func (s *sending) end() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOpen = false
	if s.running {
		s.awaiting = make(chan struct{})
	}
	return s.awaiting
}

// wake has what the session has for the client sent.
func (c *client) wake() {
	if c.sending.wake() {
		go c.send()
	}
}

// send writes the packets of the session, as many in one write as there are, until there are no more. It runs in a
// goroutine of its own.
func (c *client) send() {
	rested := false
	defer func() {
		if !rested {
			c.sending.stop()
		}
	}()
	defer c.contain()
	for !rested {
		switch more, err := c.sendQueued(); {
		case err != nil:
			return
		case more:
			continue
		}
		switch reason := c.sess.EndReason(); reason {
		case "":
			rested = c.sending.rest()
			continue
		case session.Disconnected:
		case session.Revoked:
			c.disconnect(errRevoked)
		default: // the router has ended the session
			c.disconnect(&packet.Error{Code: packet.QuotaExceeded, Text: "the session was ended: " + string(reason)})
		}
		return
	}
}

// sendQueued writes what is queued, up to about flushSize, and reports whether there may be more.
// After an error, the connection is ended.
func (c *client) sendQueued() (more bool, err error) {
	buffer := outputs.Get().(*[]byte)
	out, now := (*buffer)[:0], time.Now().Unix()
	defer func() {
		if cap(out) <= largeOutput {
			*buffer = out[:0]
			outputs.Put(buffer)
		}
	}()
	for len(out) < flushSize {
		p, ok, err := c.sess.Next()
		if err != nil {
			c.server.logger.Error("client disconnected, reading its messages failed", "session", c.sessionID, "error", err)
			c.disconnect(errUnreadable)
			return false, err
		}
		if !ok {
			break
		}
		out = c.encode(out, p, now)
	}
	if len(out) == 0 {
		return false, nil
	}
	if err := c.write(out); err != nil {
		c.end(nil, err)
		return false, err
	}
	return true, nil
}

// encode appends a packet of the session to out. It drops a message that is larger than the client
// accepts.
func (c *client) encode(out []byte, p session.Packet, now int64) []byte {
	start := len(out)
	if p.Message == nil {
		out = packet.AppendPuback(out, p.PacketID, p.Code, c.reasonText(p.Code))
		if !c.fits(len(out) - start) {
			out = packet.AppendPuback(out[:start], p.PacketID, p.Code, "")
		}
		if !c.fits(len(out) - start) {
			c.disconnect(errSmallMaximum)
			return out[:start]
		}
		return out
	}
	if out = packet.AppendPublish(out, p, now); !c.fits(len(out) - start) {
		c.server.log(slog.LevelWarn, "message_dropped", "message dropped, client's maximum packet size exceeded", "session", c.sessionID, "topic", p.Message.Topic, "maximumPacketSize", c.maxPacketSize)
		c.sess.Drop(p.PacketID)
		out = out[:start]
	}
	return out
}

// reasonText returns the reason string for the code of a PUBACK, "" for none.
func (c *client) reasonText(code byte) string {
	switch {
	case c.noProblemInfo:
	case code == packet.NotAuthorized:
		return "this client may not publish to this topic"
	case code == packet.QuotaExceeded:
		return "this client has more than its share of a queue"
	case code == packet.BadPayloadFormat:
		if reason := c.listRefused.Load(); reason != nil {
			return *reason
		}
	}
	return ""
}
