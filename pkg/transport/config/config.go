// Package config reads the transport configuration file: where the broker is,
// how to authenticate to it and which topics to use (docs/protocol.md,
// Transport configuration file). The keys are OCM's, so that its files serve
// unchanged:
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
// [Load] reads and checks such a file, [Config] may as well be filled in by a
// program:
//
//	broker, err := config.Load(path)
//	...
//	link, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: "cluster1-agent"})
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// What the zero value of a field of [Config] stands for.
const (
	DefaultKeepAlive         = 60 * time.Second
	DefaultDialTimeout       = 60 * time.Second
	DefaultQoS               = 1
	DefaultSessionExpiry     = 24 * time.Hour
	DefaultReceiveMaximum    = 256
	DefaultMaximumPacketSize = 16 << 20
)

// Config is what a transport configuration file says. Each field's comment
// begins with its key. TLS is used when a certificate authority or a client
// certificate is given, else the connection is plain TCP.
type Config struct {
	// BrokerHost (brokerHost) is host:port of the broker. Required.
	BrokerHost string
	// Username (username) to authenticate with, none when empty.
	Username string
	// Password (password) to authenticate with, none when empty.
	Password string
	// PasswordFile (passwordFile) holds the password instead, so that no secret
	// stands in the configuration; a line break at its end is no part of it. It is
	// read at every connect. Ours; OCM has no such key.
	PasswordFile string

	// KeepAlive (keepAlive, in seconds) is how long the connection may be silent
	// before it is probed: 60 s when 0, whole seconds up to 65535.
	KeepAlive time.Duration
	// DialTimeout (dialTimeout) bounds one attempt to connect: 60 s when 0.
	DialTimeout time.Duration

	// PubQoS and SubQoS (pubQoS, subQoS) are the qualities of service to publish
	// and subscribe with, 0 to 2; nil means 1. With 0 events get lost. 2 is
	// carried as 1: every event of the protocol is idempotent, so that a second
	// delivery does what 2 would prevent at twice the packets.
	PubQoS, SubQoS *byte

	// Topics (topics) are the topic patterns.
	Topics wire.Topics

	// CA (caFile or caData) are the certificates to trust the broker by; the
	// system's when empty.
	CA PEM
	// ClientCert and ClientKey (clientCertFile or clientCertData, clientKeyFile or
	// clientKeyData) are what the broker knows this client by: both or none.
	ClientCert, ClientKey PEM

	// SessionExpiry (sessionExpiry) is how long the broker shall keep the session,
	// and queue what is published meanwhile, while this client is away: 24 h when
	// 0, whole seconds. Ours.
	SessionExpiry time.Duration
	// ReceiveMaximum (receiveMaximum) is how many messages may be received and
	// not acknowledged at a time: 256 when 0. Ours.
	ReceiveMaximum uint16
	// MaximumPacketSize (maximumPacketSize) is the greatest packet in bytes that
	// the broker may send: 16 MiB when 0. Brokers drop what exceeds it. Ours.
	MaximumPacketSize uint32
}

// PEM is PEM text, in a file that is read again when it changes, or given. At
// most one field is set.
type PEM struct {
	File string
	Data []byte
}

// IsEmpty reports that neither field is set.
func (p PEM) IsEmpty() bool { return p.File == "" && len(p.Data) == 0 }

func (p PEM) read() ([]byte, error) {
	if p.File == "" {
		return p.Data, nil
	}
	data, err := os.ReadFile(p.File)
	if err != nil {
		return nil, err // names the operation and the path
	}
	return data, nil
}

// WithDefaults gives c with its zero fields filled in.
func (c Config) WithDefaults() Config {
	setDefault(&c.KeepAlive, DefaultKeepAlive)
	setDefault(&c.DialTimeout, DefaultDialTimeout)
	setDefault(&c.SessionExpiry, DefaultSessionExpiry)
	setDefault(&c.ReceiveMaximum, DefaultReceiveMaximum)
	setDefault(&c.MaximumPacketSize, DefaultMaximumPacketSize)
	if c.PubQoS == nil {
		c.PubQoS = new(byte(DefaultQoS))
	}
	if c.SubQoS == nil {
		c.SubQoS = new(byte(DefaultQoS))
	}
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// UsesTLS reports whether the connection is encrypted.
func (c Config) UsesTLS() bool {
	return !c.CA.IsEmpty() || !c.ClientCert.IsEmpty() || !c.ClientKey.IsEmpty()
}

// ReadPassword returns the password, reading PasswordFile if that is set.
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

// Validate reports every fault of c at once, each by its key and with what to
// do. It reads the files that c names. Topics are checked where they are used,
// by [wire.Topics], and not here: a program may use topics of its own.
func (c Config) Validate() error {
	var faults []error
	fault := func(key, format string, args ...any) {
		faults = append(faults, fmt.Errorf(key+": "+format, args...))
	}
	if err := validateBrokerHost(c.BrokerHost); err != nil {
		faults = append(faults, err)
	}
	if c.Password != "" && c.PasswordFile != "" {
		fault("passwordFile", "password is given as well: keep one of them")
	}
	if _, err := c.ReadPassword(); err != nil {
		faults = append(faults, err)
	}
	if (c.Password != "" || c.PasswordFile != "") && c.Username == "" {
		fault("username", "a password is given without it: add the username")
	}
	checkDuration := func(key string, d, least, most time.Duration) {
		if d != 0 && (d < least || d > most) {
			fault(key, "%s is out of range: use %s to %s", d, least, most)
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
			fault(q.key, "%d is no quality of service: use 0, 1 or 2", *q.value)
		}
	}
	if c.MaximumPacketSize != 0 && c.MaximumPacketSize < 1024 {
		fault("maximumPacketSize", "%d bytes hold no event: use at least 1024", c.MaximumPacketSize)
	}
	return errors.Join(append(faults, c.validateTLS())...)
}

func validateBrokerHost(hostPort string) error {
	const example = `for example "broker.example.com:1883"`
	if hostPort == "" {
		return errors.New("brokerHost: required, host:port of the MQTT broker, " + example)
	}
	host, port, err := net.SplitHostPort(hostPort)
	if strings.Contains(hostPort, "://") {
		return fmt.Errorf("brokerHost: %q is a URL: give host:port alone, %s; TLS is chosen by giving caFile or clientCertFile", hostPort, example)
	}
	if err != nil || host == "" {
		return fmt.Errorf("brokerHost: %q is no host:port, %s", hostPort, example)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("brokerHost: port %q of %q is no number from 1 to 65535", port, hostPort)
	}
	return nil
}
