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
	// writeTimeout is how long a client may leave a packet unread before it is disconnected.
	writeTimeout = 30 * time.Second
	// hurryTimeout replaces it once somebody waits for the connection to end.
	hurryTimeout = time.Second
	// lingerTime is how long the rest of a refused packet is read and thrown away, so that
	// the client gets to see why: closing at once would reset the connection under the reason.
	lingerTime = 2 * time.Second
)

// errPacketTooLarge ends a connection on which a packet beyond the maximum was announced.
var errPacketTooLarge = errors.New("the client sent a packet larger than the maximum packet size")

// clientConn is a client's connection, as mochi-mqtt sees it. It follows the packet
// boundaries of what is read and refuses a packet by its header alone, before room for it
// is made: mochi-mqtt would end the connection without telling the client the reason.
// And it bounds every write, so that a client that does not read cannot hold up anyone.
//
// One goroutine reads. Writing is safe for concurrent use.
type clientConn struct {
	net.Conn
	attachment

	tls     *tlsFiles // nil: plain TCP
	checked *tlsState // what recheck has accepted the client certificate by, used by recheck alone
	until   time.Time // likewise: when the certificate expires

	frames  framer
	tooBig  bool // the next Read refuses
	packets int  // packets begun, the refused one included

	mu      sync.Mutex
	hurried bool // write deadlines stay as hurry has set them
}

// peerCertificate returns the client certificate that TLS verified, or nil.
func (c *clientConn) peerCertificate() *x509.Certificate {
	if certs := c.peerCertificates(); len(certs) > 0 {
		return certs[0]
	}
	return nil
}

// peerCertificates returns it with the others that the client sent along.
func (c *clientConn) peerCertificates() []*x509.Certificate {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.ConnectionState().PeerCertificates
	}
	return nil
}

// Read returns bytes of packets that are small enough. At the first one that is not, it
// tells the client reason 0x95 and fails with errPacketTooLarge.
func (c *clientConn) Read(p []byte) (int, error) {
	if c.tooBig {
		c.refuse()
		return 0, errPacketTooLarge
	}
	n, err := c.Conn.Read(p)
	good, begun, ok := c.frames.scan(p[:n])
	c.packets += begun
	if ok {
		return n, err
	}
	c.tooBig = true
	if good > 0 {
		return good, nil // the packets before it are handled first
	}
	return c.Read(p)
}

func (c *clientConn) refuse() {
	reason := []byte{0xE0, 2, 0x95, 0} // DISCONNECT, packet too large
	if c.packets <= 1 {
		reason = []byte{0x20, 3, 0, 0x95, 0} // CONNACK: the packet was the CONNECT
	}
	c.hurry()
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
	if !c.hurried {
		_ = c.SetWriteDeadline(time.Now().Add(writeTimeout))
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// SetDeadline sets the deadline for reading, by which mochi-mqtt enforces the keep alive.
// The deadline for writing is this type's own.
func (c *clientConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// hurry makes all writes, also one that is under way, end within hurryTimeout from now.
func (c *clientConn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hurried {
		c.hurried = true
		_ = c.SetWriteDeadline(time.Now().Add(hurryTimeout))
	}
}
