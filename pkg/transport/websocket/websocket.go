// Package websocket carries MQTT over a WebSocket (MQTT 5.0, section 6): a [Conn] is the stream of bytes in the binary
// messages of one, as a [net.Conn], at either end. A client and a server of MQTT use it in place of the
// connection that it runs over:
//
//	conn, err := websocket.Client(ctx, secured, "wss://broker.example.com/mqtt")
//	conn, err := websocket.Server(secured, "/mqtt", nil)
package websocket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	// subprotocol is that of MQTT.
	subprotocol = "mqtt"

	clientBuffer = 64 << 10 // bytes: a client writes larger messages in several frames
	serverBuffer = 1 << 10  // bytes for reading, of each connection at rest
	maxRequest   = 8 << 10  // bytes of the request for a WebSocket

	// pongTimeout is how long the answer to a ping may take to be written.
	pongTimeout = time.Second
	// freeReads is how many reads from below may bring no byte of MQTT at no charge: a header may come alone.
	freeReads = 2
)

var (
	clientBuffers, serverBuffers sync.Pool

	errText = errors.New("the peer sent text over the WebSocket, and MQTT is binary")
)

// Conn is the stream of bytes in the messages of a WebSocket. One goroutine may read, and one write. Deadlines may be
// set at any time, and act on the connection that it runs over: after one has passed, Conn is of no further use.
type Conn struct {
	below  *below
	ws     *websocket.Conn
	frames io.Reader // the rest of the message that is being read; nil: none
	failed error     // of the first read that has failed; afterwards the WebSocket cannot be read
	raw    bool      // CloseWrite was called
}

// Client asks the server of url, which conn is connected to, with TLS if the scheme is wss, for a WebSocket. It closes conn if
// it returns an error, and when ctx ends before it returns.
func Client(ctx context.Context, conn net.Conn, url string) (*Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	b := &below{Conn: conn}
	given := func(context.Context, string, string) (net.Conn, error) { return b, nil }
	dialer := websocket.Dialer{
		NetDialContext: given, NetDialTLSContext: given, Subprotocols: []string{subprotocol},
		WriteBufferSize: clientBuffer, WriteBufferPool: &clientBuffers,
	}
	ws, answer, err := dialer.DialContext(ctx, url, nil) //nolint:bodyclose // "does not need to be closed by the application"
	switch {
	case !stop():
		err = errors.Join(ctx.Err(), err)
	case err != nil && answer != nil:
		err = &RefusedError{Status: answer.Status}
	case err == nil && ws.Subprotocol() != subprotocol:
		err = &RefusedError{Status: "an answer without the subprotocol " + subprotocol}
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("WebSocket %s: %w", url, err)
	}
	return newConn(ws, b), nil
}

// RefusedError is the answer of a server that does not open a WebSocket for MQTT.
type RefusedError struct {
	Status string // of the HTTP response
}

// Error returns the answer.
func (e *RefusedError) Error() string { return "the server answered " + e.Status }

// Server reads the request for a WebSocket at path from conn, and answers it. charge, if not nil, is called, in the
// goroutine that reads, for each ping of the client and for each read that brings no byte of MQTT; it may wait, and its error ends reading.
// The caller limits the time by a deadline of conn, and closes conn if there is an error.
func Server(conn net.Conn, path string, charge func() error) (*Conn, error) {
	b := &below{Conn: conn}
	upgrade := &upgrade{conn: b, header: http.Header{}, reader: bufio.NewReaderSize(io.LimitReader(conn, maxRequest), serverBuffer)}
	request, err := http.ReadRequest(upgrade.reader)
	if err != nil {
		return nil, fmt.Errorf("read the request for a WebSocket: %w", err)
	}
	switch {
	case request.URL.Path != path:
		err = upgrade.refuse(http.StatusNotFound, fmt.Sprintf("the path is %q", request.URL.Path))
	case !slices.Contains(websocket.Subprotocols(request), subprotocol):
		err = upgrade.refuse(http.StatusBadRequest, "the subprotocol mqtt is not asked for")
	}
	if err != nil {
		return nil, err
	}
	upgrader := websocket.Upgrader{
		Subprotocols: []string{subprotocol}, ReadBufferSize: serverBuffer, WriteBufferSize: serverBuffer, WriteBufferPool: &serverBuffers,
		// Credentials are in the CONNECT of MQTT, and a page that another site serves has none.
		CheckOrigin: func(*http.Request) bool { return true },
	}
	ws, err := upgrader.Upgrade(upgrade, request, nil)
	if err != nil {
		return nil, err
	}
	b.charge = charge
	return newConn(ws, b), nil
}

func newConn(ws *websocket.Conn, b *below) *Conn {
	ws.SetPingHandler(func(data string) error {
		if b.charge != nil {
			if err := b.charge(); err != nil {
				return err
			}
		}
		return pong(ws, data)
	})
	ws.SetCloseHandler(func(int, string) error { return nil }) // Close answers
	return &Conn{below: b, ws: ws}
}

// pong answers a ping, unless a message is being written for longer than it may wait.
func pong(ws *websocket.Conn, data string) error {
	err := ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(pongTimeout))
	var network net.Error
	if errors.Is(err, websocket.ErrCloseSent) || errors.As(err, &network) && network.Timeout() {
		return nil
	}
	return err
}

// Read implements [io.Reader]. It may return no bytes and no error.
func (c *Conn) Read(p []byte) (int, error) {
	if c.raw {
		return c.below.Conn.Read(p)
	}
	if c.failed != nil {
		return 0, c.failed
	}
	if c.frames == nil {
		kind, frames, err := c.ws.NextReader()
		if err == nil && kind != websocket.BinaryMessage {
			err = errText
		}
		if err != nil {
			return 0, c.fail(err)
		}
		c.frames = frames
	}
	n, err := c.frames.Read(p)
	if n > 0 {
		c.below.reads = 0
	}
	if errors.Is(err, io.EOF) {
		c.frames, err = nil, nil
	}
	if err != nil {
		return n, c.fail(err)
	}
	return n, nil
}

// fail keeps the first error of a read.
func (c *Conn) fail(err error) error {
	if websocket.IsCloseError(err, websocket.CloseNormalClosure, websocket.CloseGoingAway, websocket.CloseNoStatusReceived, websocket.CloseAbnormalClosure) {
		err = io.EOF
	}
	c.failed = err
	return err
}

// Write implements [io.Writer]: p is one message.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.ws.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite says that nothing more is written. What is read afterwards may only be thrown away: it is not decoded.
func (c *Conn) CloseWrite() error {
	c.raw = true
	err := c.sayClose()
	if half, ok := c.below.Conn.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, half.CloseWrite())
	}
	return err
}

func (c *Conn) sayClose() error {
	return c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(pongTimeout))
}

// Close implements [io.Closer]. It says so to the peer if that takes no long time.
func (c *Conn) Close() error {
	_ = c.sayClose() // the connection ends anyway
	return c.below.Close()
}

// LocalAddr implements [net.Conn].
func (c *Conn) LocalAddr() net.Addr { return c.below.LocalAddr() }

// RemoteAddr implements [net.Conn].
func (c *Conn) RemoteAddr() net.Addr { return c.below.RemoteAddr() }

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { return c.below.Conn.SetReadDeadline(t) }

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.below.setWriteDeadline(t) }

// below is the connection that a WebSocket runs over. The library sets deadlines too: those of answers to pings count, and
// otherwise those of the Conn stay.
type below struct {
	net.Conn
	charge func() error // nil: nothing is charged
	reads  int          // since the last byte of MQTT

	mu    sync.Mutex
	until time.Time // the write deadline of the Conn; guarded by mu
}

// Read implements [io.Reader].
func (b *below) Read(p []byte) (int, error) {
	if b.reads++; b.charge != nil && b.reads > freeReads {
		if err := b.charge(); err != nil {
			return 0, err
		}
	}
	return b.Conn.Read(p)
}

func (b *below) setWriteDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until = t
	return b.Conn.SetWriteDeadline(t)
}

// SetWriteDeadline is called by the library, with none for a message.
func (b *below) SetWriteDeadline(t time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.IsZero() || !b.until.IsZero() && b.until.Before(t) {
		t = b.until
	}
	return b.Conn.SetWriteDeadline(t)
}

// SetDeadline is called by the library after a handshake, whose deadline is the caller's.
func (b *below) SetDeadline(time.Time) error { return nil }

// upgrade is the [http.ResponseWriter] of a connection that becomes a WebSocket.
type upgrade struct {
	conn   net.Conn
	reader *bufio.Reader
	header http.Header
	status int
}

// Hijack implements [http.Hijacker].
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return u.conn, bufio.NewReadWriter(u.reader, bufio.NewWriterSize(u.conn, serverBuffer)), nil
}

// Header implements [http.ResponseWriter].
func (u *upgrade) Header() http.Header { return u.header }

// WriteHeader implements [http.ResponseWriter].
func (u *upgrade) WriteHeader(status int) { u.status = status }

// Write implements [http.ResponseWriter]: p is the whole body.
func (u *upgrade) Write(p []byte) (int, error) {
	u.header.Set("Connection", "close")
	response := http.Response{
		StatusCode: u.status, ProtoMajor: 1, ProtoMinor: 1, Header: u.header, ContentLength: int64(len(p)), Close: true,
		Body: io.NopCloser(bytes.NewReader(p)),
	}
	return len(p), response.Write(u.conn)
}

func (u *upgrade) refuse(status int, reason string) error {
	http.Error(u, http.StatusText(status), status)
	return fmt.Errorf("request for a WebSocket refused with %d: %s", status, reason)
}
