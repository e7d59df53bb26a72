package broker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/packet"
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/tracing"
)

// server holds what the connections of all clients share. It is safe for concurrent use.
type server struct {
	cfg      Config
	auth     *authenticator
	limiter  *limits.Limiter
	router   *session.Router
	counters *counters
	traffic  traffic
	logger   *slog.Logger
	tracer   *tracing.Tracer              // nil: none
	tlsFiles []*tlsFiles                  // of the listeners
	stopping chan struct{}                // closed when the broker begins to stop
	draining atomic.Pointer[packet.Error] // tells clients to go; nil unless the broker drains
	onStop   atomic.Pointer[packet.Error] // tells clients to go when the broker stops; nil: to come back

	revocations *revocations

	conns sync.Map // of *client, by session id; a connection waits for the end of the previous one

	inspect func(sessionID string, h packet.Header) // called for each packet after the login; nil except in tests
}

// Reasons for which the broker ends connections.
var (
	errTakenOver      = &packet.Error{Code: packet.SessionTakenOver, Text: "another client connected with the same client id"}
	errStopping       = &packet.Error{Code: packet.ServerShuttingDown, Text: "the broker stops"}
	errBadCertificate = &packet.Error{Code: packet.NotAuthorized, Text: "the client certificate is no longer accepted"}
	errKeepAlive      = &packet.Error{Code: packet.KeepAliveTimeout, Text: "the client sent nothing for 1.5 times its keep alive"}
	errRevoked        = &packet.Error{Code: packet.NotAuthorized, Text: "the certificate or password of the session is no longer accepted"}
	errUnreadable     = &packet.Error{Code: packet.Unspecified, Text: "a queued message cannot be read"}
	errFault          = &packet.Error{Code: packet.ImplementationError, Text: "a fault of the broker"}
)

// takeOverGrace is how long the previous client of a session that is taken over is still heard. Its
// DISCONNECT may have arrived just before: without it, the will would be published.
const takeOverGrace = 100 * time.Millisecond

// takeOver disconnects the client that has the session of c, and waits until it has left it.
func (s *server) takeOver(c *client) {
	last, exists := s.conns.Swap(c.sessionID, c)
	if !exists {
		return
	}
	previous := last.(*client)
	s.log(slog.LevelInfo, "takeover", "session taken over, disconnecting its previous client", "session", c.sessionID, "remote", c.remote)
	previous.takenOver.Store(true)
	previous.stopReading(takeOverGrace)
	select {
	case <-previous.done:
		return
	case <-time.After(takeOverGrace):
	}
	previous.disconnect(errTakenOver) // shortens its writes: the client may be dead with a full buffer
	<-previous.done
}

// disconnectAll disconnects every client.
func (s *server) disconnectAll(why *packet.Error) {
	for _, c := range s.conns.Range {
		c.(*client).shortenWrites() // of all first: a client that does not read delays nobody
	}
	for _, c := range s.conns.Range {
		c.(*client).disconnect(why)
	}
}

// drain sends clients to another server from now on, or once the broker stops, or no longer if d is
// nil.
func (s *server) drain(d *Drain) {
	if d == nil {
		s.draining.Store(nil)
		s.onStop.Store(nil)
		return
	}
	cause := &packet.Error{Code: packet.UseAnotherServer, Text: "the broker sends its clients to another one", Reference: d.ServerReference}
	if d.Permanent {
		cause.Code = packet.ServerMoved
	}
	s.onStop.Store(cause)
	if d.OnStop {
		cause = nil
	}
	s.draining.Store(cause)
}

// sendAway disconnects all clients while the broker drains.
func (s *server) sendAway() {
	if to := s.draining.Load(); to != nil {
		s.disconnectAll(to)
	}
}
