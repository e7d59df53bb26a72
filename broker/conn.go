package broker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const (
	writeTimeout      = 30 * time.Second // how long a client may leave a packet unread
	shortWriteTimeout = time.Second      // likewise, once another goroutine waits for the end of the connection
	// lingerTime is how long the rest of a refused packet is read and discarded. Closing the
	// connection at once would reset it before the client has read the reason.
	lingerTime = 2 * time.Second
)

// errPacketTooLarge means that a packet exceeds the maximum packet size.
var errPacketTooLarge = errors.New("the client sent a packet larger than the maximum packet size")

// clientConn is the connection of a client that mochi-mqtt reads and writes. It refuses a packet
// that is too large by its header, before memory for it is allocated; mochi-mqtt would end the
// connection without a reason. It also limits the time of every write, so that a client that does
// not read delays nobody.
//
// One goroutine reads. Writing is safe for concurrent use.
type clientConn struct {
	net.Conn
	clientSession

	tls        *tlsFiles // nil: plain TCP
	checkedBy  *tlsState // accepted the client certificate last; owned by recheckCertificates
	validUntil time.Time // when the client certificate expires; likewise

	frames   framer
	tooLarge bool // the next Read refuses a packet
	packets  int  // packets begun, including the refused one

	closing sync.Once
	closed  chan struct{} // closed by Close; nil: nobody waits for it

	mu          sync.Mutex
	shortWrites bool // the write deadline stays as shortenWrites has set it
}

// peerCertificates returns the verified client certificate, if any, and the intermediate ones.
func (c *clientConn) peerCertificates() []*x509.Certificate {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.ConnectionState().PeerCertificates
	}
	return nil
}

// Read reads bytes of packets that are small enough. At the first packet that is too large, it
// sends the client reason 0x95 and returns errPacketTooLarge.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.tooLarge {
		c.refusePacket()
		return 0, errPacketTooLarge
	}
	n, err := c.Conn.Read(p)
	good, begun, ok := c.frames.scan(p[:n])
	c.packets += begun
	if ok {
		return n, err
	}
	c.tooLarge = true
	if good > 0 {
		return good, nil // the packets before it are handled first
	}
	return c.Read(p)
}

func (c *clientConn) refusePacket() {
	reason := []byte{0xE0, 2, 0x95, 0} // DISCONNECT, packet too large
	if c.packets <= 1 {
		reason = []byte{0x20, 3, 0, 0x95, 0} // CONNACK: the packet was the CONNECT
	}
	c.shortenWrites()
	if _, err := c.Write(reason); err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(lingerTime))
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_, _ = io.Copy(io.Discard, c.Conn)
}

// Write writes p within writeTimeout.
func (c *clientConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.shortWrites {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Close closes the connection, and closed.
func (c *clientConn) Close() error {
	c.closing.Do(func() {
		if c.closed != nil {
			close(c.closed)
		}
	})
	return c.Conn.Close()
}

// SetDeadline sets the read deadline, with which mochi-mqtt enforces the keep alive. Write sets the
// write deadline.
func (c *clientConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// shortenWrites makes all writes, including a current one, end within shortWriteTimeout from now.
func (c *clientConn) shortenWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.shortWrites {
		c.shortWrites = true
		_ = c.SetWriteDeadline(time.Now().Add(shortWriteTimeout))
	}
}
