package mqttraw

import (
	"bufio"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"
)

// timeout limits the life of a connection, unless the test sets another deadline.
const timeout = 5 * time.Minute

// Conn is a connection to a broker. Its methods fail the test on an error, and must be called by
// the goroutine of the test.
type Conn struct {
	net.Conn
	// Reader reads from the connection.
	Reader *bufio.Reader

	t testing.TB
}

// Dial connects to addr and sends nothing. The connection is closed at the end of the test.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	return DialFrom(t, "127.0.0.1", addr)
}

// DialFrom is like [Dial], from an address of loopback. Systems other than Linux have 127.0.0.1 only,
// and use it.
func DialFrom(t testing.TB, ip, addr string) *Conn {
	t.Helper()
	dialer := net.Dialer{}
	if runtime.GOOS == "linux" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(ip)}
	}
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(timeout))
	return &Conn{Conn: conn, Reader: bufio.NewReader(conn), t: t}
}

// Send writes packets in one segment, as far as the network keeps it. It does not fail the test:
// the broker may have closed the connection, which the next packet shows.
func (c *Conn) Send(packets ...[]byte) { _, _ = c.Write(Bytes(packets...)) }

// Next reads one packet.
func (c *Conn) Next() *Received {
	c.t.Helper()
	p, err := Read(c.Reader)
	if err != nil {
		c.t.Fatalf("read a packet: %v", err)
	}
	return p
}

// Expect reads one packet, which must have the type.
func (c *Conn) Expect(kind byte) *Received {
	c.t.Helper()
	p := c.Next()
	if p.Type != kind {
		c.t.Fatalf("got %v, want a packet of type %02X", p, kind)
	}
	return p
}

// ExpectEnd waits until the broker closes the connection without another packet.
func (c *Conn) ExpectEnd() {
	c.t.Helper()
	p, err := Read(c.Reader)
	switch {
	case err == nil:
		c.t.Fatalf("got %v, want the end of the connection", p)
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.t.Fatal("the broker does not close the connection")
	}
}

// ExpectDisconnect reads a DISCONNECT with one of codes, and then the end of the connection. Other
// packets may come before it, but no PINGRESP: send a PINGREQ after a packet that must end the
// connection, so that the test does not wait for an end that does not come.
func (c *Conn) ExpectDisconnect(codes ...byte) {
	c.t.Helper()
	for {
		p, err := Read(c.Reader)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.t.Fatalf("the connection stays open, want DISCONNECT % x", codes)
		}
		if err != nil {
			c.t.Fatalf("got %v, want DISCONNECT % x", err, codes)
		}
		if p.Type == PINGRESP {
			c.t.Fatalf("the connection goes on, want DISCONNECT % x", codes)
		}
		if p.Type != DISCONNECT {
			continue
		}
		if !slices.Contains(codes, p.Code()) {
			c.t.Errorf("got DISCONNECT %02x, want % x", p.Code(), codes)
		}
		c.ExpectEnd()
		return
	}
}
