package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

// connectTimeout is how long a new connection may take until its CONNECT is read, the TLS
// handshake included.
const connectTimeout = 10 * time.Second

// listener accepts connections for mochi-mqtt (it is one of its Listener implementations).
// Close returns only when every connection's goroutine has ended.
type listener struct {
	id     string
	socket net.Listener
	tls    *tlsFiles // nil: plain TCP
	max    uint32    // maximum packet size in bytes
	log    *slog.Logger

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  chan struct{}  // closed by Close
	wg    sync.WaitGroup // one per connection, and one for Serve; added to while done is open
}

// listen opens the socket of a listener.
func listen(cfg Listener, maxPacketSize uint32, log *slog.Logger) (*listener, error) {
	l := &listener{id: cfg.Address, max: maxPacketSize, log: log, conns: map[net.Conn]struct{}{}, done: make(chan struct{})}
	if cfg.TLS != nil {
		files, err := newTLSFiles(*cfg.TLS, log)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", cfg.Address, err)
		}
		l.tls = files
	}
	socket, err := net.Listen("tcp", cfg.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for MQTT clients: %w; another process uses the port: stop it or configure another address", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for MQTT clients: %w", err)
	}
	l.socket = socket
	return l, nil
}

// ID, Address and Protocol describe the listener to mochi-mqtt.
func (l *listener) ID() string       { return l.id }
func (l *listener) Address() string  { return l.socket.Addr().String() }
func (l *listener) Protocol() string { return "tcp" }

// Init has nothing to do: the socket is open already.
func (l *listener) Init(*slog.Logger) error { return nil }

// Serve accepts connections until Close.
func (l *listener) Serve(establish listeners.EstablishFn) {
	if !l.enter(nil) {
		return
	}
	defer l.wg.Done()
	for {
		conn, err := l.socket.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of file descriptors, or a client that went away in between: the
			// listener must outlive both.
			l.log.Warn("accepting a connection failed", "listener", l.id, "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-l.done:
				return
			}
		}
		if !l.enter(conn) {
			_ = conn.Close()
			return
		}
		go func() {
			defer l.leave(conn)
			l.handle(conn, establish)
		}()
	}
}

func (l *listener) handle(conn net.Conn, establish listeners.EstablishFn) {
	_ = conn.SetDeadline(time.Now().Add(connectTimeout))
	client := &clientConn{Conn: conn, tls: l.tls, frames: framer{max: uint64(l.max)}}
	defer client.finish()
	if l.tls != nil {
		secure := tls.Server(conn, l.tls.serverConfig())
		if err := secure.Handshake(); err != nil {
			l.logHandshake(conn, err)
			return
		}
		client.Conn = secure
	}
	if err := establish(l.id, client); err != nil {
		l.log.Debug("connection ended", "listener", l.id, "remote", conn.RemoteAddr().String(), "error", err)
	}
}

// logHandshake tells why a handshake failed: louder, and with the name, when a client showed
// a certificate that is not accepted, since anybody may knock on a port.
func (l *listener) logHandshake(conn net.Conn, err error) {
	var unverified *tls.CertificateVerificationError
	var revoked *revokedError
	level, subject := slog.LevelInfo, ""
	switch {
	case errors.As(err, &revoked):
		level, subject = slog.LevelWarn, revoked.cert.Subject.String()
	case errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0:
		level, subject = slog.LevelWarn, unverified.UnverifiedCertificates[0].Subject.String()
	}
	l.log.Log(context.Background(), level, "TLS handshake failed", "listener", l.id, "remote", conn.RemoteAddr().String(), "certificate", subject, "error", err)
}

// enter counts a connection in, or Serve itself for nil. It refuses once Close was called.
func (l *listener) enter(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return false
	default:
	}
	if conn != nil {
		l.conns[conn] = struct{}{}
	}
	l.wg.Add(1)
	return true
}

func (l *listener) leave(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	delete(l.conns, conn)
	l.mu.Unlock()
	l.wg.Done()
}

// Close stops accepting, closes the connections that are left, and waits for them. It is
// called once. The clients were told already, by hook.goodbye: mochi-mqtt's own way to tell
// them, the function given here, deadlocks when a client leaves at the same moment.
func (l *listener) Close(listeners.CloseFn) {
	_ = l.socket.Close()
	l.mu.Lock()
	close(l.done)
	l.mu.Unlock()
	l.mu.Lock()
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
