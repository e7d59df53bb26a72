package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/crypto/bcrypt"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/broker/acl"
)

// Defaults of [Config].
const (
	DefaultMaxPacketSize     = 1 << 20   // bytes
	DefaultReceiveMaximum    = 1024      // messages
	DefaultMaxQueuedMessages = 100_000   // messages a session
	DefaultMaxQueuedBytes    = 512 << 20 // bytes a session
)

// Config says how a broker is reached, by whom, and what it keeps. The zero value is not
// usable: at least one listener, and one user or client CA, are needed. The YAML file
// that [LoadConfig] reads has the same keys as the JSON names below.
type Config struct {
	// Listeners are the addresses for MQTT clients, at least one.
	Listeners []Listener `json:"listeners"`

	// Users may connect with a name and a password.
	Users []User `json:"users,omitempty"`

	// Certificates maps client certificates to identities. A certificate that is not
	// listed is identified by its subject: the common name is the id, the organisational
	// unit "agents", "sources" or "monitors" the role.
	Certificates []Certificate `json:"certificates,omitempty"`

	// DataDir is the directory of the broker's database, made when missing. Empty: sessions
	// and queued messages live in memory and end with the broker.
	DataDir string `json:"dataDir,omitempty"`

	// MaxPacketSize is the size in bytes of the largest MQTT packet that is accepted. It is
	// announced to clients; a larger one ends the connection with reason 0x95. 0 means
	// [DefaultMaxPacketSize]; at least 1024, at most 268435460 (the limit of MQTT).
	MaxPacketSize uint32 `json:"maxPacketSize,omitempty"`

	// ReceiveMaximum is the number of messages that a client may have published and not
	// yet seen acknowledged; announced to clients. 0 means [DefaultReceiveMaximum].
	ReceiveMaximum uint16 `json:"receiveMaximum,omitempty"`

	// MaxQueuedMessages and MaxQueuedBytes bound what waits for one session. A session that
	// would exceed either is ended whole, never thinned out: its client is disconnected
	// with reason 0x97 and finds no session when it returns, which makes it resync.
	// 0 means [DefaultMaxQueuedMessages] and [DefaultMaxQueuedBytes].
	MaxQueuedMessages int   `json:"maxQueuedMessages,omitempty"`
	MaxQueuedBytes    int64 `json:"maxQueuedBytes,omitempty"`

	// HTTPAddress is where /metrics, /healthz and /readyz are served, without TLS and
	// therefore on loopback only, unless HTTPExposed is set. Empty: not served.
	HTTPAddress string `json:"httpAddress,omitempty"`

	// HTTPExposed allows an HTTPAddress beyond loopback, for scrapers and probes on other
	// machines; /metrics then tells anyone who asks how many clients and messages there are.
	HTTPExposed bool `json:"httpExposed,omitempty"`

	// Logger receives the broker's log: no payloads, no passwords. nil means slog.Default().
	Logger *slog.Logger `json:"-"`
}

// Listener is one address for MQTT clients.
type Listener struct {
	// Address is host:port. Port 0 picks a free one. Without TLS the host must be a
	// loopback address.
	Address string `json:"address"`

	// TLS encrypts the listener. nil: plain TCP.
	TLS *ListenerTLS `json:"tls,omitempty"`
}

// ListenerTLS names PEM files. They are read again within a second when they change; while a
// changed file cannot be used, the former content stays in use. New connections get what is
// new at once. Of those there are, the ones end whose client certificate has expired, or is
// revoked, or of a CA that ClientCAFile does not hold any more.
type ListenerTLS struct {
	// CertFile and KeyFile are the broker's certificate chain and key.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`

	// ClientCAFile holds the CAs of client certificates. With it, a client may identify
	// itself by certificate instead of a user name; a certificate of another CA is refused.
	ClientCAFile string `json:"clientCAFile,omitempty"`

	// CRLFile holds revocation lists, in PEM, of those CAs: a client certificate on one is
	// refused, and a connection with it ended. A list past its next update counts on.
	CRLFile string `json:"crlFile,omitempty"`

	// RequireClientCert refuses connections without a client certificate, also of users.
	RequireClientCert bool `json:"requireClientCert,omitempty"`
}

// User is a client that connects with a name and a password. Exactly one of PasswordHash,
// PasswordFile and Password is set.
type User struct {
	Username string `json:"username"`

	// PasswordHash is a bcrypt hash, as `work-broker passwd` prints it.
	PasswordHash string `json:"passwordHash,omitempty"`

	// PasswordFile names a file that holds such a hash. It is read again when it changes.
	PasswordFile string `json:"passwordFile,omitempty"`

	// Password is the password itself, for programs that embed a broker and make the
	// password up when they start. It cannot be set in a file.
	Password string `json:"-"`

	// Role is agent, source or monitor.
	Role acl.Role `json:"role"`

	// ID is the cluster of an agent or the id of a source. Empty: the user name.
	ID string `json:"id,omitempty"`
}

// Identity returns the identity that u has once its password is accepted.
func (u User) Identity() acl.Identity {
	if u.ID == "" {
		return acl.Identity{Role: u.Role, ID: u.Username}
	}
	return acl.Identity{Role: u.Role, ID: u.ID}
}

// Certificate gives the client certificates of one common name an identity.
type Certificate struct {
	CommonName string   `json:"commonName"`
	Role       acl.Role `json:"role"`
	// ID is the cluster of an agent or the id of a source. Empty: the common name.
	ID string `json:"id,omitempty"`
}

// Identity returns the identity of the holder of such a certificate.
func (c Certificate) Identity() acl.Identity {
	if c.ID == "" {
		return acl.Identity{Role: c.Role, ID: c.CommonName}
	}
	return acl.Identity{Role: c.Role, ID: c.ID}
}

// LoadConfig reads a YAML file strictly: a key that Config does not have is an error that
// names it. Relative file names in it are relative to the file's own directory.
func LoadConfig(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the broker configuration: %w", err)
	}
	cfg, err := ParseConfig(data)
	if err != nil {
		return Config{}, fmt.Errorf("broker configuration %s: %w", path, err)
	}
	cfg.resolve(filepath.Dir(path))
	return cfg, nil
}

// ParseConfig decodes the YAML of a configuration file, strictly. It does not validate it
// ([New] does) and leaves relative file names as they are.
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return Config{}, fmt.Errorf("decode YAML: %w", err)
	}
	return cfg, nil
}

func (c *Config) resolve(dir string) {
	abs := func(p *string) {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	abs(&c.DataDir)
	for i := range c.Users {
		abs(&c.Users[i].PasswordFile)
	}
	for i := range c.Listeners {
		if t := c.Listeners[i].TLS; t != nil {
			abs(&t.CertFile)
			abs(&t.KeyFile)
			abs(&t.ClientCAFile)
			abs(&t.CRLFile)
		}
	}
}

func (c *Config) setDefaults() {
	if c.MaxPacketSize == 0 {
		c.MaxPacketSize = DefaultMaxPacketSize
	}
	if c.ReceiveMaximum == 0 {
		c.ReceiveMaximum = DefaultReceiveMaximum
	}
	if c.MaxQueuedMessages == 0 {
		c.MaxQueuedMessages = DefaultMaxQueuedMessages
	}
	if c.MaxQueuedBytes == 0 {
		c.MaxQueuedBytes = DefaultMaxQueuedBytes
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}

// validate reports every fault at once. It does no I/O.
func (c *Config) validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(c.Listeners) == 0 {
		fault("listeners: none is configured; add at least one address, for instance 127.0.0.1:1883")
	}
	clientCA := false
	for i, l := range c.Listeners {
		if err := l.validate(); err != nil {
			fault("listeners[%d]: %w", i, err)
		}
		clientCA = clientCA || l.TLS != nil && l.TLS.ClientCAFile != ""
	}
	if len(c.Users) == 0 && !clientCA {
		fault("users: none is configured and no listener has a clientCAFile, so nobody could connect; anonymous clients are always refused")
	}
	names := map[string]bool{}
	for i, u := range c.Users {
		if err := u.validate(); err != nil {
			fault("users[%d] (%s): %w", i, u.Username, err)
		}
		if names[u.Username] {
			fault("users[%d]: username %q is listed twice", i, u.Username)
		}
		names[u.Username] = true
	}
	names = map[string]bool{}
	for i, m := range c.Certificates {
		if m.CommonName == "" {
			fault("certificates[%d]: commonName is missing", i)
		}
		if names[m.CommonName] {
			fault("certificates[%d]: commonName %q is listed twice", i, m.CommonName)
		}
		names[m.CommonName] = true
		if err := m.Identity().Validate(); err != nil {
			fault("certificates[%d] (%s): %w", i, m.CommonName, err)
		}
	}
	if c.MaxPacketSize < 1024 || c.MaxPacketSize > 268435460 {
		fault("maxPacketSize: %d is outside 1024 to 268435460 bytes", c.MaxPacketSize)
	}
	if c.MaxQueuedMessages < 0 {
		fault("maxQueuedMessages: %d is negative", c.MaxQueuedMessages)
	}
	if c.MaxQueuedBytes < int64(c.MaxPacketSize) {
		fault("maxQueuedBytes: %d is less than maxPacketSize (%d), so that one message could exceed it", c.MaxQueuedBytes, c.MaxPacketSize)
	}
	if c.HTTPAddress == "" && c.HTTPExposed {
		fault("httpExposed: true has no effect without an httpAddress")
	}
	if c.HTTPAddress != "" {
		loopback, err := isLoopback(c.HTTPAddress)
		switch {
		case err != nil:
			fault("httpAddress: %w", err)
		case !loopback && !c.HTTPExposed:
			fault("httpAddress: %s is not a loopback address and metrics are served without authentication; use 127.0.0.1 or set httpExposed: true", c.HTTPAddress)
		}
	}
	return errors.Join(errs...)
}

func (l Listener) validate() error {
	loopback, err := isLoopback(l.Address)
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if l.TLS == nil {
		if !loopback {
			return fmt.Errorf("address %s is not a loopback address and has no TLS; add tls.certFile and tls.keyFile, or listen on 127.0.0.1", l.Address)
		}
		return nil
	}
	if l.TLS.CertFile == "" || l.TLS.KeyFile == "" {
		return errors.New("tls: certFile and keyFile are both needed")
	}
	if l.TLS.RequireClientCert && l.TLS.ClientCAFile == "" {
		return errors.New("tls: requireClientCert needs a clientCAFile")
	}
	if l.TLS.CRLFile != "" && l.TLS.ClientCAFile == "" {
		return errors.New("tls: crlFile needs a clientCAFile, whose certificates it revokes")
	}
	return nil
}

func (u User) validate() error {
	if u.Username == "" {
		return errors.New("username is missing")
	}
	given := 0
	for _, s := range []string{u.PasswordHash, u.PasswordFile, u.Password} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return errors.New("exactly one of passwordHash and passwordFile is needed; `work-broker passwd` makes a hash")
	}
	if u.PasswordHash != "" {
		if _, err := bcrypt.Cost([]byte(u.PasswordHash)); err != nil {
			return errors.New("passwordHash is no bcrypt hash; `work-broker passwd` makes one")
		}
	}
	return u.Identity().Validate()
}

// isLoopback reports whether address (host:port) can be reached from this machine only.
// A host name counts only when it is "localhost", so that no lookup decides about safety.
func isLoopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	if host == "localhost" {
		return true, nil
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback(), nil
}
