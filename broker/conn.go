package broker

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/broker/packet"
)

const (
	minPiece          = 256              // bytes that a read brings, on average, at no extra charge
	writeTimeout      = 30 * time.Second // how long a client may leave a packet unread
	shortWriteTimeout = time.Second      // likewise, once another goroutine waits for the end of the connection
	// lingerTime is how long bytes of a client are read and discarded after the broker has ended its
	// connection. Closing the connection at once would reset it before the client has read why.
	lingerTime = 2 * time.Second
)

// errPacketTooLarge means that a packet exceeds the maximum packet size.
var errPacketTooLarge = &packet.Error{Code: packet.TooLarge, Text: "the client sent a packet larger than the maximum packet size"}

// traffic counts the bytes of all connections.
type traffic struct{ received, sent atomic.Int64 }

// conn is the network connection of a client. It limits the time of every write, so that a client
// that does not read delays nobody.
//
// One goroutine reads packets. The other methods are safe for concurrent use.
type conn struct {
	socket  net.Conn // TCP, TLS or a WebSocket
	traffic *traffic
	in      input

	idle          time.Duration // how long a client may take for its next packet; 0: forever
	maxPacketSize int           // that the client accepts, in bytes; 0: any

	// admit is called before the body of a packet is read, with its size, and with 0 for each read
	// that brings little of it. It may wait. An error ends reading; nil admits all.
	admit func(size int) error

	takenOver atomic.Bool // another client takes the session over

	ending chan struct{} // closed once the broker ends the connection
	cause  error         // why; written before ending is closed

	mu          sync.Mutex // guards the fields below, the deadlines and cause
	ended       bool
	readUntil   time.Time // no read deadline is later; zero: see stopReading
	shortWrites bool      // the write deadline stays as shortenWrites has set it

	writing    sync.Mutex // held during a write
	connected  bool       // guarded by writing: the CONNACK is sent, a DISCONNECT may follow
	lastIsSent bool       // guarded by writing: nothing more is written
}

// readPacket reads the next packet, whose body is valid until the next call. With owned it stays
// valid. The error is a [*packet.Error] for a header that cannot be accepted, or that of the
// network.
func (c *conn) readPacket(maxSize int) (h packet.Header, body []byte, owned bool, err error) {
	began, reads, before := false, 0, c.in.received
	fill := func(size int) error {
		// A record of TLS can have one byte: what a client sends in small pieces costs more.
		if reads++; c.admit != nil && reads > 2+(c.in.received-before)/minPiece {
			reads--
			if err := c.admit(0); err != nil {
				return err
			}
		}
		if !began { // the deadline is for a packet, however many reads it takes
			began = true
			if c.idle > 0 {
				c.setReadDeadline(time.Now().Add(c.idle))
			}
		}
		return c.in.fill(c.socket, size)
	}
	for size := 2; ; size++ {
		var ok bool
		if h, ok, err = packet.ParseHeader(c.in.bytes()); err != nil {
			return h, nil, false, err
		}
		if ok {
			break
		}
		if err := fill(size); err != nil {
			return h, nil, false, err
		}
	}
	size := h.Size + h.Length
	if size > maxSize {
		return h, nil, false, errPacketTooLarge
	}
	if c.admit != nil {
		if err := c.admit(size); err != nil {
			return h, nil, false, err
		}
		began = false // it may have waited: the client has its time again
	}
	c.traffic.received.Add(int64(size))
	if size > largeInput {
		c.in.next(h.Size)
		body, err = c.readBody(h.Length, fill)
		return h, body, true, err
	}
	for len(c.in.bytes()) < size {
		if err := fill(size); err != nil {
			return h, nil, false, err
		}
	}
	return h, c.in.next(size)[h.Size:], false, nil
}

// readBody reads the n bytes of a large packet. Its memory grows with what arrives, not with what
// the header promises.
func (c *conn) readBody(n int, fill func(size int) error) ([]byte, error) {
	body := make([]byte, 0, min(n, 4*largeInput))
	for len(body) < n {
		if len(c.in.bytes()) == 0 {
			if err := fill(largeInput); err != nil {
				return nil, err
			}
		}
		if len(body) == cap(body) {
			body = append(make([]byte, 0, min(n, 2*cap(body))), body...)
		}
		body = append(body, c.in.next(min(len(c.in.bytes()), n-len(body), cap(body)-len(body)))...)
	}
	return body, nil
}

// setReadDeadline sets the time by which the next packet must have arrived; zero means none.
func (c *conn) setReadDeadline(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if !c.readUntil.IsZero() && (t.IsZero() || t.After(c.readUntil)) {
		t = c.readUntil
	}
	_ = c.socket.SetReadDeadline(t)
}

// stopReading makes reads fail after grace from now. What arrives until then is handled.
func (c *conn) stopReading(grace time.Duration) {
	c.mu.Lock()
	c.readUntil = time.Now().Add(grace)
	until := c.readUntil
	c.mu.Unlock()
	c.setReadDeadline(until)
}

// fits reports whether the client accepts packets of n bytes.
func (c *conn) fits(n int) bool { return c.maxPacketSize == 0 || n <= c.maxPacketSize }

// errSmallMaximum means that a packet that the client needs is too large for it.
var errSmallMaximum = &packet.Error{Code: packet.ImplementationError, Text: "the client's maximum packet size is too small to answer it"}

// answer writes one packet. It is an error if the client does not accept its size.
func (c *conn) answer(p []byte) error {
	if !c.fits(len(p)) {
		return errSmallMaximum
	}
	return c.write(p)
}

// write writes p within writeTimeout.
func (c *conn) write(p []byte) error {
	c.mu.Lock()
	if !c.shortWrites {
		_ = c.socket.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.lastIsSent {
		return net.ErrClosed
	}
	n, err := c.socket.Write(p)
	c.traffic.sent.Add(int64(n))
	// The first packet is the CONNACK. The client may have read it by now, so that whoever ends the
	// connection must know.
	c.connected = c.connected || err == nil
	return err
}

// shortenWrites makes all writes, including a current one, end within shortWriteTimeout from now.
func (c *conn) shortenWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shortWrites {
		c.shortWrites = true
		_ = c.socket.SetWriteDeadline(time.Now().Add(shortWriteTimeout))
	}
}

// end ends the connection after a last packet; nil means none. Before the CONNACK, it may only be
// that, and another is left out. The goroutine that reads returns.
// Only the first call has an effect.
func (c *conn) end(last []byte, cause error) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	c.ended, c.cause = true, cause
	c.mu.Unlock()
	c.shortenWrites()
	c.writing.Lock()
	if last != nil && (c.connected || packet.Type(last[0]>>4) == packet.TypeConnack) {
		n, _ := c.socket.Write(last) // fails if the client has gone
		c.traffic.sent.Add(int64(n))
	}
	c.lastIsSent = true
	c.writing.Unlock()
	_ = c.socket.SetReadDeadline(time.Unix(1, 0)) // wakes the goroutine that reads
	close(c.ending)
}

// disconnect ends the connection with a DISCONNECT that names the cause.
func (c *conn) disconnect(cause *packet.Error) {
	last := packet.AppendDisconnect(nil, cause.Code, truncate(cause.Text), cause.Reference)
	if !c.fits(len(last)) {
		last = packet.AppendDisconnect(nil, cause.Code, "", "")
	}
	if !c.fits(len(last)) {
		last = nil
	}
	c.end(last, cause)
}

// endCause returns why the broker has ended the connection, or nil if it has not.
func (c *conn) endCause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// linger lets the client read the last packet. Callers close the socket after it.
func (c *conn) linger() {
	if c.endCause() == nil {
		return
	}
	_ = c.socket.SetReadDeadline(time.Now().Add(lingerTime))
	if half, ok := c.socket.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c.socket)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
