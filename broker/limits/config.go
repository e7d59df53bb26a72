package limits

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/workwire/workwire/broker/acl"
)

// Defaults of [Config].
const (
	DefaultConnections            = 20_000
	DefaultPending                = 4_000
	DefaultPendingPerAddress      = 2_000
	DefaultConnectionsPerIdentity = 100
	DefaultLogLinesPerSecond      = 50

	DefaultAgentMessagesPerSecond  = 2_000
	DefaultAgentBytesPerSecond     = 8 << 20
	DefaultJoinerMessagesPerSecond = 5_000 // 40 joins, each a login and some packets
	DefaultJoinerBytesPerSecond    = 184 << 10
	DefaultSourceMessagesPerSecond = 40_000
	DefaultSourceBytesPerSecond    = 256 << 20
)

// Bursts, in seconds of a rate. What a client sends at once delays others until it is handled, so
// that it may be little.
const (
	burst    = 0.25 // of messages and bytes; at least LoginMessages
	logBurst = 2    // of log lines
)

// LoginMessages is the number of messages that a login counts. Every burst has as many.
const LoginMessages = 100

// An agent's bytes beyond the first largePacket ones of a packet count largeFactor times: others wait
// while the disk, the TLS connection and the memory of the process are busy with all of it.
const (
	largePacket = 64 << 10
	largeFactor = 16
	// joinerPacket is what a joiner's packet counts at least: a hub looks at each. Joiners that send all that they may use a tenth of
	// two CPUs of hub and broker, and 34 clusters a second can join (docs/performance.md).
	joinerPacket = 384
)

// Config configures a [Limiter]. A value of 0 means the default. The broker's configuration file has
// the JSON names below as keys of `limits`.
type Config struct {
	// Connections is the maximum number of connections of all clients, with those that have not
	// logged in; default [DefaultConnections]. More are closed.
	Connections int `json:"connections,omitempty"`

	// Pending is the maximum number of connections that have not logged in; default
	// [DefaultPending]. A further one takes the place of one of the address with the most of them.
	Pending int `json:"pending,omitempty"`

	// PendingPerAddress is the maximum number of those from one address, or from one IPv6 network
	// of 64 bits; default [DefaultPendingPerAddress]. A further one takes the place of the one whose
	// client has sent nothing for the longest time; it is closed if the broker owes all others an
	// answer. A fleet behind one address reconnects within it.
	PendingPerAddress int `json:"pendingPerAddress,omitempty"`

	// ConnectionsPerIdentity is the maximum number of connections that have logged in as one
	// identity; default [DefaultConnectionsPerIdentity]. More are refused with reason 0x97.
	ConnectionsPerIdentity int `json:"connectionsPerIdentity,omitempty"`

	// PasswordChecks is the maximum number of passwords that are checked at a time; default three
	// quarters of the CPUs, at least one. Addresses take turns, and so do the user names of an address.
	// Those with a wrong password in the last minute share a tenth of it; see [Limiter.Authenticate].
	PasswordChecks int `json:"passwordChecks,omitempty"`

	// Handshakes is the maximum number of TLS handshakes that use a CPU at a time; default three
	// quarters of the CPUs, at least one. Addresses take turns.
	Handshakes int `json:"handshakes,omitempty"`

	// Agent and Source limit what one identity of the role sends, and Joiner what all joiners send together;
	// defaults [DefaultAgentMessagesPerSecond] and so on. After a pause, a client may send what it is allowed
	// in a quarter of a second at once. Above that the broker reads more slowly from its connections.
	Agent  Rate `json:"agent,omitzero"`
	Source Rate `json:"source,omitzero"`
	Joiner Rate `json:"joiner,omitzero"`

	// LogLinesPerSecond limits the lines of each kind in the log that clients can cause; default
	// [DefaultLogLinesPerSecond]. The next line says how many were left out.
	LogLinesPerSecond int `json:"logLinesPerSecond,omitempty"`
}

// Rate is what an identity may send. Each packet counts as a message, acknowledgements too, as does
// each filter of a subscription; a login counts as 100. What an agent's packet has beyond 64 KiB counts
// 16 times.
type Rate struct {
	MessagesPerSecond int   `json:"messagesPerSecond,omitempty"`
	BytesPerSecond    int64 `json:"bytesPerSecond,omitempty"`
}

func (r Rate) withDefaults(messages int, bytes int64) Rate {
	return Rate{cmp.Or(r.MessagesPerSecond, messages), cmp.Or(r.BytesPerSecond, bytes)}
}

// WithDefaults returns c with its defaults in the place of zero values.
func (c Config) WithDefaults() Config {
	c.Connections = cmp.Or(c.Connections, DefaultConnections)
	c.Pending = cmp.Or(c.Pending, DefaultPending)
	c.PendingPerAddress = cmp.Or(c.PendingPerAddress, DefaultPendingPerAddress)
	c.ConnectionsPerIdentity = cmp.Or(c.ConnectionsPerIdentity, DefaultConnectionsPerIdentity)
	most := max(runtime.GOMAXPROCS(0)*3/4, 1) // the other CPUs serve clients that are connected
	c.PasswordChecks = cmp.Or(c.PasswordChecks, most)
	c.Handshakes = cmp.Or(c.Handshakes, most)
	c.Agent = c.Agent.withDefaults(DefaultAgentMessagesPerSecond, DefaultAgentBytesPerSecond)
	c.Source = c.Source.withDefaults(DefaultSourceMessagesPerSecond, DefaultSourceBytesPerSecond)
	c.Joiner = c.Joiner.withDefaults(DefaultJoinerMessagesPerSecond, DefaultJoinerBytesPerSecond)
	c.LogLinesPerSecond = cmp.Or(c.LogLinesPerSecond, DefaultLogLinesPerSecond)
	return c
}

// Validate reports every value that is negative.
func (c Config) Validate() error {
	var errs []error
	for _, field := range []struct {
		name  string
		value int64
	}{
		{"connections", int64(c.Connections)},
		{"pending", int64(c.Pending)},
		{"pendingPerAddress", int64(c.PendingPerAddress)},
		{"connectionsPerIdentity", int64(c.ConnectionsPerIdentity)},
		{"passwordChecks", int64(c.PasswordChecks)},
		{"handshakes", int64(c.Handshakes)},
		{"agent.messagesPerSecond", int64(c.Agent.MessagesPerSecond)},
		{"agent.bytesPerSecond", c.Agent.BytesPerSecond},
		{"source.messagesPerSecond", int64(c.Source.MessagesPerSecond)},
		{"source.bytesPerSecond", c.Source.BytesPerSecond},
		{"joiner.messagesPerSecond", int64(c.Joiner.MessagesPerSecond)},
		{"joiner.bytesPerSecond", c.Joiner.BytesPerSecond},
		{"logLinesPerSecond", int64(c.LogLinesPerSecond)},
	} {
		if field.value < 0 {
			errs = append(errs, fmt.Errorf("limits.%s: must not be negative, got %d", field.name, field.value))
		}
	}
	return errors.Join(errs...)
}

// rate returns what id may send. A monitor may send what an agent may.
func (c Config) rate(id acl.Identity) Rate {
	switch id.Role {
	case acl.Source:
		return c.Source
	case acl.Joiner:
		return c.Joiner
	}
	return c.Agent
}

// cost returns what a packet of size bytes counts for id.
func (c Config) cost(id acl.Identity, size int) int {
	if id.Role == acl.Joiner {
		return max(size, joinerPacket)
	}
	if id.Role == acl.Source || size <= largePacket {
		return size
	}
	return largePacket + (size-largePacket)*largeFactor
}
