package limits

import (
	"maps"
	"sync"
	"time"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/pkg/runtime/quota"
)

// Limiter keeps the limits of one broker. It is safe for concurrent use.
type Limiter struct {
	now func() time.Time

	mu          sync.Mutex // guards all below, and the connections
	cfg         Config     // with defaults
	connections int
	pending     int
	addresses   map[string]*pendingAt // pending connections by address
	identities  map[string]int        // connections by identity
	refused     map[error]uint64
	lines       *quota.Lines      // of the log, by kind: a constant of the caller, so that their number is bounded
	leftOut     map[string]uint64 // of these lines since the start; 0 for a kind that had none left out

	passwords  passwordQueue
	handshakes handshakes
	rates      rates
}

// New returns a Limiter.
func New(cfg Config) *Limiter { return newLimiter(cfg, time.Now) }

func newLimiter(cfg Config, now func() time.Time) *Limiter {
	cfg = cfg.WithDefaults()
	return &Limiter{
		now: now, cfg: cfg, lines: newLines(cfg), leftOut: map[string]uint64{},
		addresses: map[string]*pendingAt{}, identities: map[string]int{}, refused: map[error]uint64{},
		passwords: newPasswordQueue(), handshakes: newHandshakes(), rates: rates{roles: map[acl.Role]granted{}},
	}
}

// Configure replaces the limits. Connections that exceed the new ones stay.
func (l *Limiter) Configure(cfg Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.cfg.LogLinesPerSecond
	if l.cfg = cfg.WithDefaults(); l.cfg.LogLinesPerSecond != before {
		l.lines = newLines(l.cfg)
	}
}

func newLines(cfg Config) *quota.Lines {
	rate := float64(cfg.LogLinesPerSecond)
	return quota.NewLines(quota.Rate{PerSecond: rate, Burst: rate * logBurst})
}

// Log reports whether a line of a kind may be written now, and how many were left out since the last
// one; the line should say so.
func (l *Limiter) Log(kind string) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	total := l.leftOut[kind]
	if leftOut, ok = l.lines.Allow(kind, 1, l.now()); !ok {
		total++
	}
	l.leftOut[kind] = total
	return leftOut, ok
}

func (l *Limiter) config() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cfg
}

// Refusals are the reasons of [Stats.Refused], by their name in metrics.
var Refusals = map[string]error{
	"connections": ErrConnections, "pending": ErrPending, "pending_address": ErrPendingAddress, "identity": ErrIdentity,
}

// Stats holds current numbers, and counts since the start.
type Stats struct {
	Connections     int               // current connections
	Pending         int               // current connections that have not logged in
	Refused         map[error]uint64  // connections refused or evicted, by reason
	PasswordChecks  uint64            // passwords checked
	PasswordWaiting int               // password checks that wait for their turn
	Handshakes      int               // TLS handshakes that wait for their turn
	Throttled       uint64            // packets after which the broker paused reading
	ThrottledTime   time.Duration     // sum of these pauses
	LogLinesLeftOut map[string]uint64 // by kind
}

// Stats returns the current statistics.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	s := Stats{Connections: l.connections, Pending: l.pending, Refused: maps.Clone(l.refused), LogLinesLeftOut: maps.Clone(l.leftOut)}
	l.mu.Unlock()
	s.PasswordChecks, s.PasswordWaiting = l.passwords.stats()
	s.Handshakes = l.handshakes.stats()
	s.Throttled, s.ThrottledTime = l.rates.stats()
	return s
}
