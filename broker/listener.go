package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/workwire/workwire/broker/limits"
)

// connectTimeout limits the time from the accept of a connection until its CONNECT is read,
// including the TLS handshake.
const connectTimeout = 10 * time.Second

// tcpKeepAlive is after which silence TCP asks whether a client is there. It is for those without a keep-alive of MQTT; to others, also on
// metered links, that would be most of the packets.
const tcpKeepAlive = 5 * time.Minute

// listener accepts connections. Close returns when the goroutines of all connections have ended.
type listener struct {
	id     string
	socket net.Listener
	tls    *tlsFiles   // nil: plain TCP
	config *tls.Config // nil: plain TCP
	path   string      // of WebSockets; "": MQTT without WebSocket
	// proxies are load balancers, whose connections begin with the address of the client.
	proxies []netip.Prefix
	logger  *slog.Logger

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	done  chan struct{}  // closed by Close
	wg    sync.WaitGroup // one for each connection and one for Serve, added while done is open
}

// listen opens the socket of a listener.
func listen(cfg Listener, sent *revocations, logger *slog.Logger) (*listener, error) {
	proxies, err := cfg.proxies()
	if err != nil {
		return nil, fmt.Errorf("listener %s: %w", cfg.Address, err)
	}
	l := &listener{id: cfg.Address, path: cfg.WebSocketPath, proxies: proxies, logger: logger, conns: map[net.Conn]struct{}{}, done: make(chan struct{})}
	if cfg.TLS != nil {
		files, err := newTLSFiles(*cfg.TLS, sent, logger)
		if err != nil {
			return nil, fmt.Errorf("listener %s: %w", cfg.Address, err)
		}
		l.tls, l.config = files, files.serverConfig()
	}
	socket, err := (&net.ListenConfig{KeepAlive: tcpKeepAlive}).Listen(context.Background(), "tcp", cfg.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for MQTT clients: %w; another process uses the port: stop it or configure another address", err)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for MQTT clients: %w", err)
	}
	l.socket = socket
	return l, nil
}

// Serve accepts connections until Close.
func (l *listener) Serve(s *server) {
	if !l.track(nil) {
		return
	}
	defer l.wg.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		conn, err := l.socket.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// No file descriptors are left, or the client has gone: neither may end the listener.
			l.logger.Warn("accept failed, retrying", "listener", l.id, "error", err)
			select {
			case <-time.After(50 * time.Millisecond):
				continue
			case <-l.done:
				return
			}
		}
		if !l.track(conn) {
			_ = conn.Close()
			return
		}
		go l.handle(ctx, conn, s)
	}
}

// handle serves one connection. Its login ends with ctx. After the login another goroutine goes on, whose
// stack the handshake has not grown.
func (l *listener) handle(ctx context.Context, accepted net.Conn, s *server) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	socket, err := l.clientOf(accepted)
	if err != nil {
		s.log(slog.LevelWarn, "connection_refused", "connection refused", "remote", accepted.RemoteAddr().String(), "listener", l.id, "reason", err)
		l.untrack(accepted)
		return
	}
	counted, err := s.limiter.Accept(socket.RemoteAddr(), func() {
		cancel()
		_ = socket.Close()
		s.log(slog.LevelWarn, "connection_refused", "connection closed before its login, another one takes its place", "remote", socket.RemoteAddr().String(), "listener", l.id)
	})
	if err != nil {
		s.log(slog.LevelWarn, "connection_refused", "connection refused", "remote", socket.RemoteAddr().String(), "listener", l.id, "reason", err)
		l.untrack(accepted)
		return
	}
	_ = socket.SetDeadline(time.Now().Add(connectTimeout))
	c := &client{
		counted: counted,
		conn:    conn{socket: socket, traffic: &s.traffic, ending: make(chan struct{})},
		server:  s, listener: l.id, remote: socket.RemoteAddr().String(),
	}
	connected := false
	defer func() {
		if !connected {
			defer l.untrack(accepted)
			c.close()
		}
	}()
	defer c.contain()
	if l.tls != nil {
		secure, err := l.handshake(ctx, s, socket, counted)
		if err != nil {
			l.logHandshake(s, socket, err)
			return
		}
		c.setTLS(secure, l.tls)
	}
	if l.path != "" {
		if err := c.openWebSocket(l.path); err != nil {
			s.log(slog.LevelInfo, "websocket", "WebSocket not opened", "listener", l.id, "remote", c.remote, "error", err)
			return
		}
	}
	if !c.login(ctx) {
		return
	}
	connected = true
	go func() {
		defer l.untrack(accepted)
		defer c.close()
		defer c.contain()
		c.serve()
	}()
}

// clientOf returns the connection with the address of the client, which a load balancer sends first.
func (l *listener) clientOf(accepted net.Conn) (net.Conn, error) {
	from, ok := accepted.RemoteAddr().(*net.TCPAddr)
	if !ok || !slices.ContainsFunc(l.proxies, func(p netip.Prefix) bool { return p.Contains(from.AddrPort().Addr().Unmap()) }) {
		return accepted, nil
	}
	proxied := proxyproto.NewConn(accepted, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(connectTimeout))
	if proxied.ProxyHeader() == nil {
		return nil, errors.New("a load balancer of proxyProtocolFrom has sent no header of the PROXY protocol: have it send one")
	}
	return proxied, nil
}

// handshake makes the TLS handshake of a connection. It uses the CPU only in its turn.
func (l *listener) handshake(ctx context.Context, s *server, socket net.Conn, counted *limits.Connection) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	turns := &turnConn{
		Conn: socket,
		enter: func() error {
			counted.Busy()
			return s.limiter.EnterHandshake(ctx, counted.Address())
		},
		leave: func() {
			s.limiter.LeaveHandshake()
			counted.Idle()
		},
	}
	secure := tls.Server(turns, l.config)
	defer func() {
		if turns.inTurn {
			turns.leave()
		}
		turns.enter, turns.leave, turns.inTurn = nil, nil, false
	}()
	return secure, secure.Handshake()
}

// turnConn is a connection during its TLS handshake, in one goroutine: it gives up its turn while it
// waits for the client. It has none before the client has said something: one that never does costs little.
type turnConn struct {
	net.Conn
	enter  func() error // nil after the handshake
	leave  func()
	inTurn bool
}

// Read implements [io.Reader].
func (c *turnConn) Read(p []byte) (int, error) {
	if c.enter == nil { // always after the handshake: without the stack and the closure of outOfTurn
		return c.Conn.Read(p)
	}
	return c.outOfTurn(c.Conn.Read, p)
}

// Write implements [io.Writer]. A client that does not read may block it.
func (c *turnConn) Write(p []byte) (int, error) {
	if c.enter == nil {
		return c.Conn.Write(p)
	}
	return c.outOfTurn(c.Conn.Write, p)
}

func (c *turnConn) outOfTurn(do func([]byte) (int, error), p []byte) (int, error) {
	if c.inTurn {
		c.leave()
		c.inTurn = false
	}
	n, err := do(p)
	if err != nil { // the handshake ends
		return n, err
	}
	if err := c.enter(); err != nil {
		return n, err
	}
	c.inTurn = true
	return n, nil
}

// logHandshake logs a failed handshake: as a warning with the subject if the client presented a
// certificate that is not accepted, else at level info, since anyone can connect to a port.
func (l *listener) logHandshake(s *server, conn net.Conn, err error) {
	var unverified *tls.CertificateVerificationError
	var revoked *revokedError
	level, kind, subject := slog.LevelInfo, "handshake", ""
	switch {
	case errors.As(err, &revoked):
		level, kind, subject = slog.LevelWarn, "handshake_certificate", revoked.cert.Subject.String()
	case errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0:
		level, kind, subject = slog.LevelWarn, "handshake_certificate", unverified.UnverifiedCertificates[0].Subject.String()
	}
	s.log(level, kind, "TLS handshake failed", "listener", l.id, "remote", conn.RemoteAddr().String(), "certificate", subject, "error", err)
}

// track adds a connection, or Serve itself for nil. It returns false after Close.
func (l *listener) track(conn net.Conn) bool {
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

func (l *listener) untrack(conn net.Conn) {
	_ = conn.Close()
	l.mu.Lock()
	delete(l.conns, conn)
	l.mu.Unlock()
	l.wg.Done()
}

// Close stops accepting, closes the remaining connections and waits for their goroutines, once.
func (l *listener) Close() {
	_ = l.socket.Close()
	l.mu.Lock()
	close(l.done)
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
