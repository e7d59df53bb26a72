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
	pending  *list.Element // in its address's list; nil after LogIn, eviction and Close
	identity string        // "" before LogIn
	closed   bool
}

// Address returns the address that the limits are counted for: the IPv4 address, or the network of
// 64 bits of an IPv6 address.
func (c *Connection) Address() string { return c.address }

// addressOf returns the key of a remote address.
func addressOf(remote net.Addr) string {
	if remote == nil {
		return ""
	}
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
	largest     int // not logged in, of the address with the most
}

// admit decides about a new connection. If evict is true, the address with the most pending
// connections must give up one, so that an address with many cannot keep out one with few.
func admit(c Config, o occupancy) (evict bool, refused error) {
	switch {
	case o.ofAddress >= c.PendingPerAddress:
		return false, ErrPendingAddress
	case o.pending >= c.Pending && o.ofAddress >= o.largest:
		return false, ErrPending
	case o.pending >= c.Pending:
		return true, nil
	case o.connections >= c.Connections && o.largest > o.ofAddress+1:
		return true, nil
	case o.connections >= c.Connections:
		return false, ErrConnections
	}
	return false, nil
}

// Accept admits a new connection, or returns why it must be closed. evict closes the connection; the
// Limiter may call it once, before LogIn. Close the connection in either case. Accept costs a visit
// to every address with pending connections if there are too many, else O(1).
func (l *Limiter) Accept(remote net.Addr, evict func()) (*Connection, error) {
	c := &Connection{limiter: l, address: addressOf(remote), evict: evict}
	l.mu.Lock()
	o := occupancy{connections: l.connections, pending: l.pending, ofAddress: l.pendingOf(c.address)}
	var largest *list.List
	if o.pending >= l.cfg.Pending || o.connections >= l.cfg.Connections {
		largest = l.largestAddress()
		o.largest = largest.Len()
	}
	evicts, err := admit(l.cfg, o)
	if err != nil {
		l.refused[err]++
		l.mu.Unlock()
		return nil, err
	}
	var victim *Connection
	if evicts {
		victim = largest.Front().Value.(*Connection)
		victim.leavePending()
		victim.closed = true
		l.connections--
		l.refused[ErrPending]++
	}
	if l.addresses[c.address] == nil {
		l.addresses[c.address] = list.New()
	}
	c.pending = l.addresses[c.address].PushBack(c)
	l.pending++
	l.connections++
	l.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return c, nil
}

func (l *Limiter) pendingOf(address string) int {
	if pending := l.addresses[address]; pending != nil {
		return pending.Len()
	}
	return 0
}

// largestAddress returns the pending connections of the address with the most, which may be none.
func (l *Limiter) largestAddress() *list.List {
	largest := list.New()
	for _, pending := range l.addresses {
		if pending.Len() > largest.Len() {
			largest = pending
		}
	}
	return largest
}

// leavePending removes c from the pending connections. Callers hold limiter.mu.
func (c *Connection) leavePending() {
	if c.pending == nil {
		return
	}
	l := c.limiter
	pending := l.addresses[c.address]
	pending.Remove(c.pending)
	if pending.Len() == 0 {
		delete(l.addresses, c.address)
	}
	c.pending = nil
	l.pending--
}

// LogIn counts the connection as one of id from now on. It returns ErrIdentity if id has its maximum
// number, and ErrPending if the connection has been evicted or closed. It must be called once.
func (c *Connection) LogIn(id acl.Identity) error {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.closed {
		return ErrPending
	}
	name := id.String()
	if l.identities[name] >= l.cfg.ConnectionsPerIdentity {
		l.refused[ErrIdentity]++
		return ErrIdentity
	}
	c.leavePending()
	c.identity = name
	l.identities[name]++
	return nil
}

// Close ends the count of the connection. It may be called more than once, and on nil.
func (c *Connection) Close() {
	if c == nil {
		return
	}
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
