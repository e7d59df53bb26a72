// Package config reads the transport configuration file: the address of the broker, the credentials
// and the topics (docs/protocol.md, Transport configuration file). It has the same keys as OCM's
// file, which can be used unchanged:
//
//	brokerHost: broker.example.com:8883
//	username: cluster1
//	passwordFile: /etc/workwire/password
//	caFile: /etc/workwire/ca.crt
//	clientCertFile: /etc/workwire/tls.crt
//	clientKeyFile: /etc/workwire/tls.key
//	topics:
//	  sourceEvents: sources/hub1/clusters/+/sourceevents
//	  agentEvents: sources/hub1/clusters/+/agentevents
//
// [Load] reads and validates a file:
//
//	broker, err := config.Load(path)
//	...
//	t, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: "cluster1-agent"})
package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultKeepAlive         = 60 * time.Second
	DefaultDialTimeout       = 60 * time.Second
	DefaultQoS               = 1
	DefaultSessionExpiry     = 24 * time.Hour
	DefaultReceiveMaximum    = 256
	DefaultMaximumPacketSize = 16 << 20
)

// Config is the content of a transport configuration file. The key of each field is in parentheses.
// The connection uses TLS if a certificate authority or a client certificate is set, or with
// TLSRequired, or if the URL of a WebSocket begins with wss://; otherwise plain TCP.
type Config struct {
	// BrokerHost (brokerHost) is the host:port of the broker, or the URL of a WebSocket, for example
	// wss://broker.example.com/mqtt; required. Several addresses of one broker are separated by
	// commas, in the file also as a list: a client connects to any of them, tried in random order.
	// OCM knows one host:port only.
	BrokerHost string
	// HubName (hubName) is hashed into the names of AppliedManifestWorks in place of BrokerHost;
	// an agent needs it if there are several addresses. Only agents use it. OCM does not have this
	// key.
	HubName string
	// Username (username) is the user name; empty for none.
	Username string
	// Password (password) is the password; empty for none.
	Password string
	// PasswordFile (passwordFile) is the path of a file with the password, so that the
	// configuration contains no secret. A trailing line break is removed. It is read on each
	// connect. OCM does not have this key.
	PasswordFile string

	// KeepAlive (keepAlive, in seconds) is how long the connection may be idle before a ping is
	// sent: whole seconds, at most 65535 s, default 60 s.
	KeepAlive time.Duration
	// DialTimeout (dialTimeout) limits one attempt to connect; default 60 s.
	DialTimeout time.Duration

	// PubQoS and SubQoS (pubQoS, subQoS) are the qualities of service to publish and subscribe
	// with: 0 to 2, default 1. With 0, events can be lost. 2 is treated as 1, since all events of
	// the protocol are idempotent.
	PubQoS, SubQoS *byte

	// Topics (topics) are the topic patterns.
	Topics wire.Topics

	// CA (caFile or caData) contains the certificate authorities of the broker; default those of
	// the system.
	CA PEM
	// TLSRequired (tls: required) has the connection use TLS whatever else is set, so that a
	// forgotten caFile fails instead of sending everything in clear text. OCM does not have this
	// key.
	TLSRequired bool
	// ClientCert and ClientKey (clientCertFile or clientCertData, clientKeyFile or clientKeyData)
	// authenticate this client: both or none.
	ClientCert, ClientKey PEM

	// SessionExpiry (sessionExpiry) is how long the broker keeps the session and queues messages
	// while this client is disconnected: whole seconds, default 24 h. OCM does not have this key.
	SessionExpiry time.Duration
	// ReceiveMaximum (receiveMaximum) is the maximum number of messages that are received and not
	// acknowledged; default 256. OCM does not have this key.
	ReceiveMaximum uint16
	// MaximumPacketSize (maximumPacketSize) is the maximum size in bytes of a packet from the
	// broker; default 16 MiB. Brokers drop larger messages. OCM does not have this key.
	MaximumPacketSize uint32
}

// PEM is PEM text: the path of a file, which is read again when it changes, or the text itself, or what a program returns, which
// is asked again like a file. At most one field is set.
type PEM struct {
	File string
	Data []byte
	Read func() ([]byte, error)
}

// IsEmpty reports whether no field is set.
func (p PEM) IsEmpty() bool { return p.File == "" && len(p.Data) == 0 && p.Read == nil }

// Changes reports whether the text may become another one.
func (p PEM) Changes() bool { return p.File != "" || p.Read != nil }

func (p PEM) read() ([]byte, error) {
	switch {
	case p.Read != nil:
		return p.Read()
	case p.File != "":
		return os.ReadFile(p.File) // the error contains the operation and the path
	}
	return p.Data, nil
}

// WithDefaults returns c with defaults in its zero fields.
func (c Config) WithDefaults() Config {
	c.KeepAlive = cmp.Or(c.KeepAlive, DefaultKeepAlive)
	c.DialTimeout = cmp.Or(c.DialTimeout, DefaultDialTimeout)
	c.SessionExpiry = cmp.Or(c.SessionExpiry, DefaultSessionExpiry)
	c.ReceiveMaximum = cmp.Or(c.ReceiveMaximum, DefaultReceiveMaximum)
	c.MaximumPacketSize = cmp.Or(c.MaximumPacketSize, DefaultMaximumPacketSize)
	c.PubQoS = cmp.Or(c.PubQoS, new(byte(DefaultQoS)))
	c.SubQoS = cmp.Or(c.SubQoS, new(byte(DefaultQoS)))
	return c
}

// UsesTLS reports whether the connection uses TLS.
func (c Config) UsesTLS() bool {
	secure := func(address string) bool {
		a, err := ParseAddress(address)
		return err == nil && a.URL != nil && a.URL.Scheme == "wss"
	}
	return slices.ContainsFunc(c.Addresses(), secure) || c.TLSRequired || !c.CA.IsEmpty() || !c.ClientCert.IsEmpty() || !c.ClientKey.IsEmpty()
}

// ReadPassword returns the password, from PasswordFile if that is set.
func (c Config) ReadPassword() (string, error) {
	if c.PasswordFile == "" {
		return c.Password, nil
	}
	data, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("passwordFile: %w", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// Validate returns an error that names the key of every invalid field, and what to do. It reads the
// files that c names. It does not check Topics, which a program may set itself; see [wire.Topics].
func (c Config) Validate() error {
	var errs []error
	invalid := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf(key+": "+format, args...))
	}
	if err := c.validateAddresses(); err != nil {
		errs = append(errs, err)
	}
	if c.Password != "" && c.PasswordFile != "" {
		invalid("passwordFile", "password is given as well: keep one of them")
	}
	if _, err := c.ReadPassword(); err != nil {
		errs = append(errs, err)
	}
	if (c.Password != "" || c.PasswordFile != "") && c.Username == "" {
		invalid("username", "a password is given without it: add the username")
	}
	checkDuration := func(key string, d, least, most time.Duration) {
		if d != 0 && (d < least || d > most) {
			invalid(key, "%s is out of range: use %s to %s", d, least, most)
		}
	}
	checkDuration("keepAlive", c.KeepAlive, time.Second, 65535*time.Second)
	checkDuration("dialTimeout", c.DialTimeout, time.Millisecond, time.Hour)
	checkDuration("sessionExpiry", c.SessionExpiry, time.Second, 365*24*time.Hour)
	for _, q := range []struct {
		key   string
		value *byte
	}{{"pubQoS", c.PubQoS}, {"subQoS", c.SubQoS}} {
		if q.value != nil && *q.value > 2 {
			invalid(q.key, "%d is no quality of service: use 0, 1 or 2", *q.value)
		}
	}
	if c.MaximumPacketSize != 0 && c.MaximumPacketSize < 1024 {
		invalid("maximumPacketSize", "%d bytes hold no event: use at least 1024", c.MaximumPacketSize)
	}
	return errors.Join(append(errs, c.validateTLS())...)
}
