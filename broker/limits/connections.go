package limits

import (
	"container/list"
	"errors"
	"net"
	"net/netip"

	"github.com/workwire/workwire/broker/acl"
)

// The reasons why a connection is refused.
var (
	// ErrConnections means that the broker has its maximum number of connections.
	ErrConnections = errors.New("the broker has its maximum number of connections")
	// ErrPending means that too many connections have not logged in yet.
	ErrPending = errors.New("too many connections have not logged in yet")
	// ErrPendingAddress means that too many connections from one address have not logged in yet.
	ErrPendingAddress = errors.New("too many connections from this address have not logged in yet")
	// ErrIdentity means that the identity has its maximum number of connections.
	ErrIdentity = errors.New("the identity has its maximum number of connections")
)

// Connection is a connection that [Limiter.Accept] has admitted. It is safe for concurrent use.
type Connection struct {
	limiter *Limiter
	address string
	evict   func()

	// Guarded by limiter.mu.
	pending  *list.Element // in idle or busy of its address; nil after LogIn, eviction and Close
	busy     bool
	identity string // "" before LogIn
	closed   bool
}

// pendingAt are the connections of one address that have not logged in.
type pendingAt struct {
	idle list.List // of *Connection for whose clients the broker waits, the longest first
	busy list.List // of *Connection whose clients wait for the broker, the longest first
}

// len returns how many they are. p may be nil.
func (p *pendingAt) len() int {
	if p == nil {
		return 0
	}
	return p.idle.Len() + p.busy.Len()
}

// idleLen returns for how many clients the broker waits. p may be nil.
func (p *pendingAt) idleLen() int {
	if p == nil {
		return 0
	}
	return p.idle.Len()
}

// oldest returns the connection that has been idle the longest, or without one, busy. There is one.
func (p *pendingAt) oldest() *Connection {
	if el := p.idle.Front(); el != nil {
		return el.Value.(*Connection)
	}
	return p.busy.Front().Value.(*Connection)
}

// list returns that which has c.
func (p *pendingAt) list(c *Connection) *list.List {
	if c.busy {
		return &p.busy
	}
	return &p.idle
}

// Address returns the address that the limits are counted for: the IPv4 address, or the network of
// 64 bits of an IPv6 address.
func (c *Connection) Address() string { return c.address }

// addressOf returns the key of a remote address.
func addressOf(remote net.Addr) string {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return remote.Network()
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(64) // fails only for more bits than addr has
	return network.String()
}

// occupancy is what [admit] decides by.
type occupancy struct {
	connections int // all
	pending     int // not logged in
	ofAddress   int // not logged in, of the new connection's address
	idle        int // of those, for whose clients the broker waits
	largest     int // not logged in, of the address with the most
}

// place is where a new connection gets its place from.
type place int

const (
	free      place = iota
	ofAddress       // from the connection of its own address that has been idle the longest
	ofLargest       // from the oldest one of the address with the most that have not logged in
)

// admit decides about a new connection. An address with many that have not logged in cannot keep out one
// with few; and at one address, clients that say nothing cannot keep out one that logs in.
func admit(c Config, o occupancy) (from place, reason error) {
	own := func(reason error) (place, error) {
		if o.idle > 0 {
			return ofAddress, reason
		}
		return free, reason
	}
	switch {
	case o.ofAddress >= c.PendingPerAddress:
		return own(ErrPendingAddress)
	case o.pending >= c.Pending && o.ofAddress >= o.largest:
		return own(ErrPending)
	case o.pending >= c.Pending, o.connections >= c.Connections && o.largest > o.ofAddress+1:
		return ofLargest, ErrPending
	case o.connections >= c.Connections:
		return own(ErrConnections)
	}
	return free, nil
}

// Accept admits a new connection, or returns why it must be closed. evict closes the connection; the
// Limiter may call it once, before LogIn. Close the connection in either case. Accept costs a visit
// to every address with pending connections if there are too many in all, else O(1).
func (l *Limiter) Accept(remote net.Addr, evict func()) (*Connection, error) {
	c := &Connection{limiter: l, address: addressOf(remote), evict: evict}
	l.mu.Lock()
	own := l.addresses[c.address]
	o := occupancy{connections: l.connections, pending: l.pending, ofAddress: own.len(), idle: own.idleLen()}
	var largest *pendingAt
	if o.pending >= l.cfg.Pending || o.connections >= l.cfg.Connections {
		largest = l.largestAddress()
		o.largest = largest.len()
	}
	from, reason := admit(l.cfg, o)
	if reason != nil {
		l.refused[reason]++
	}
	var victim *Connection
	switch {
	case from == ofAddress:
		victim = own.oldest()
	case from == ofLargest:
		victim = largest.oldest()
	case reason != nil:
		l.mu.Unlock()
		return nil, reason
	}
	if victim != nil {
		victim.leavePending()
		victim.closed = true
		l.connections--
	}
	l.enterPending(c)
	l.pending++
	l.connections++
	l.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return c, nil
}

// largestAddress returns the pending connections of the address with the most, or nil.
func (l *Limiter) largestAddress() (largest *pendingAt) {
	for _, pending := range l.addresses {
		if pending.len() > largest.len() {
			largest = pending
		}
	}
	return largest
}

// enterPending adds c to the lists of its address. Callers hold limiter.mu.
func (l *Limiter) enterPending(c *Connection) {
	at := l.addresses[c.address]
	if at == nil {
		at = &pendingAt{}
		l.addresses[c.address] = at
	}
	c.pending = at.list(c).PushBack(c)
}

// Idle says that the broker waits for the client from now on: while it does, another connection may take
// the place of this one. A new connection is idle. After LogIn, Idle and Busy have no effect.
func (c *Connection) Idle() { c.setBusy(false) }

// Busy says that the client waits for the broker from now on.
func (c *Connection) Busy() { c.setBusy(true) }

func (c *Connection) setBusy(busy bool) {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.pending == nil || c.busy == busy {
		return
	}
	at := c.limiter.addresses[c.address]
	at.list(c).Remove(c.pending)
	c.busy = busy
	c.pending = at.list(c).PushBack(c)
}

// leavePending removes c from the pending connections. Callers hold limiter.mu.
func (c *Connection) leavePending() {
	if c.pending == nil {
		return
	}
	l := c.limiter
	at := l.addresses[c.address]
	at.list(c).Remove(c.pending)
	if at.len() == 0 {
		delete(l.addresses, c.address)
	}
	c.pending = nil
	l.pending--
}

// LogIn counts the connection as one of id's account from now on. It returns ErrIdentity if id has its maximum
// number, and ErrPending if the connection has been evicted or closed. It must be called once.
func (c *Connection) LogIn(id acl.Identity) error {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return ErrPending
	}
	name := id.Account().String()
	if l.identities[name] >= l.cfg.ConnectionsPerIdentity {
		l.refused[ErrIdentity]++
		return ErrIdentity
	}
	c.leavePending()
	c.identity = name
	l.identities[name]++
	return nil
}

// Close ends the count of the connection. It may be called more than once.
func (c *Connection) Close() {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return
	}
	c.closed = true
	c.leavePending()
	l.connections--
	if c.identity == "" {
		return
	}
	if l.identities[c.identity]--; l.identities[c.identity] == 0 {
		delete(l.identities, c.identity)
	}
}
