package broker

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/broker/acl"
	"github.com/workwire/workwire/broker/limits"
	"github.com/workwire/workwire/broker/session"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/yamlfile"
)

// Defaults of [Config].
const (
	DefaultMaxPacketSize        = 1 << 20   // bytes
	DefaultReceiveMaximum       = 1024      // messages
	DefaultMaxQueuedMessages    = 100_000   // messages a session
	DefaultMaxQueuedBytes       = 512 << 20 // bytes a session
	DefaultMaxTotalBytes        = 4 << 30   // bytes of all sessions
	DefaultMaxQueuedMemoryBytes = 64 << 20  // bytes a session
	DefaultMaxTotalMemoryBytes  = 512 << 20 // bytes of all sessions
	DefaultMaxSessionExpiry     = 7 * 24 * time.Hour
	DefaultMaxWillDelay         = time.Hour
)

// Config is the configuration of a [Broker]. It needs at least one listener, and one user or client
// CA. The YAML file that [LoadConfig] reads has the JSON names below as its keys.
type Config struct {
	// Listeners are the addresses for MQTT clients, at least one.
	Listeners []Listener `json:"listeners"`

	// Users are the clients that connect with a user name and a password.
	Users []User `json:"users,omitempty"`

	// Certificates maps client certificates to identities. The subject of a certificate that is not
	// listed is its identity: the common name is the id, the organizational unit "agents",
	// "sources", "monitors" or "observers" is the role.
	Certificates []Certificate `json:"certificates,omitempty"`

	// DataDir is the directory of the broker's database; it is created if it does not exist. If it
	// is empty, sessions and messages are kept in memory and end with the broker.
	DataDir string `json:"dataDir,omitempty"`

	// MaxPacketSize is the maximum size of an MQTT packet in bytes, 1024 to 268435460; default
	// [DefaultMaxPacketSize]. A larger packet ends the connection with reason 0x95.
	MaxPacketSize uint32 `json:"maxPacketSize,omitempty"`

	// ReceiveMaximum is the maximum number of unacknowledged messages from a client; default
	// [DefaultReceiveMaximum].
	ReceiveMaximum uint16 `json:"receiveMaximum,omitempty"`

	// MaxQueuedMessages and MaxQueuedBytes limit the queue of one session; default
	// [DefaultMaxQueuedMessages] and [DefaultMaxQueuedBytes]. A session that would exceed a limit
	// is ended: its client is disconnected with reason 0x97, finds no session, and resyncs.
	MaxQueuedMessages int   `json:"maxQueuedMessages,omitempty"`
	MaxQueuedBytes    int64 `json:"maxQueuedBytes,omitempty"`

	// MaxTotalBytes limits the queues of all sessions together, in bytes; default
	// [DefaultMaxTotalBytes]. Each message counts once, and each place in a queue as 256 bytes. The
	// session with the largest queue is ended first, like one above its own limit. The database
	// needs up to twice as much disk.
	MaxTotalBytes int64 `json:"maxTotalBytes,omitempty"`

	// MaxQueuedMemoryBytes and MaxTotalMemoryBytes limit what queues have in memory only, of one
	// session and of all: messages with QoS 0, and all messages of sessions that end with their
	// connection, or without a DataDir. Default [DefaultMaxQueuedMemoryBytes] and
	// [DefaultMaxTotalMemoryBytes]. Beyond them QoS 0 is dropped, and otherwise a session ends as
	// above. MaxTotalMemoryBytes also limits what waits for the disk, counted as for MaxTotalBytes; beyond
	// it, messages are refused until the disk takes them.
	MaxQueuedMemoryBytes int64 `json:"maxQueuedMemoryBytes,omitempty"`
	MaxTotalMemoryBytes  int64 `json:"maxTotalMemoryBytes,omitempty"`

	// MaxSessionExpiry and MaxWillDelay limit what a client may ask for: how long its session
	// outlives its connection, and how long its will waits; default [DefaultMaxSessionExpiry] and
	// [DefaultMaxWillDelay]. A client that asks for more gets the maximum.
	MaxSessionExpiry metav1.Duration `json:"maxSessionExpiry,omitzero"`
	MaxWillDelay     metav1.Duration `json:"maxWillDelay,omitzero"`

	// Limits keep one client from using what others need.
	Limits limits.Config `json:"limits,omitzero"`

	// Drain sends clients to another server, now or when the broker stops; nil means that they are
	// served, and told to come back when it stops.
	Drain *Drain `json:"drain,omitempty"`

	// HTTPAddress is the host:port that serves /metrics, /healthz and /readyz. If it is not a
	// loopback address, HTTPCertFile, HTTPKeyFile and HTTPTokenFile must be set, or HTTPExposed.
	// Empty means not served.
	HTTPAddress string `json:"httpAddress,omitempty"`

	// HTTPCertFile and HTTPKeyFile name the PEM files of the certificate of HTTPAddress. They are
	// reloaded when they change. Without them it is served without TLS.
	HTTPCertFile string `json:"httpCertFile,omitempty"`
	HTTPKeyFile  string `json:"httpKeyFile,omitempty"`

	// HTTPTokenFile names a file with the bearer token that readers of /metrics must present. It is
	// reloaded when it changes. /healthz and /readyz need no token.
	HTTPTokenFile string `json:"httpTokenFile,omitempty"`

	// HTTPExposed allows an HTTPAddress that is not loopback without TLS and token, for scrapers and
	// probes in a network that others cannot reach. Anyone who can reach it can read the numbers of
	// clients and messages.
	HTTPExposed bool `json:"httpExposed,omitempty"`

	// TracerProvider makes the spans of events that continue a trace (docs/tracing.md); nil makes none. A
	// configuration file cannot set it.
	TracerProvider trace.TracerProvider `json:"-"`

	// File is the file that the configuration was loaded from. A running broker takes up its changes
	// (see package comment); empty means that there is none.
	File string `json:"-"`

	// Logger receives the broker's log, which has no payloads and no passwords; default
	// slog.Default().
	Logger *slog.Logger `json:"-"`
}

// Drain tells clients to use another server: connected ones are disconnected, and new ones refused
// once they have authenticated, with reason 0x9C. Their sessions stay. Clients of this project log
// the reference; their configuration decides where they connect.
type Drain struct {
	// ServerReference names the other server as host:port, or several with spaces between them.
	// Required.
	ServerReference string `json:"serverReference"`

	// Permanent uses reason 0x9D, server moved.
	Permanent bool `json:"permanent,omitempty"`

	// OnStop serves clients until the broker stops, and tells them then.
	OnStop bool `json:"onStop,omitempty"`
}

// Listener is one address for MQTT clients.
type Listener struct {
	// Address is host:port. Port 0 chooses a free port. Without TLS the host must be a loopback
	// address.
	Address string `json:"address"`

	// TLS encrypts the connections; nil means plain TCP.
	TLS *ListenerTLS `json:"tls,omitempty"`

	// WebSocketPath serves MQTT over WebSocket at this path of URLs, for example /mqtt, and nothing
	// else. Empty means MQTT without WebSocket.
	WebSocketPath string `json:"webSocketPath,omitempty"`

	// ProxyProtocolFrom are the load balancers that send the PROXY protocol, version 1 or 2, as addresses or in CIDR notation. A
	// connection from one of them must begin with it; it counts and is logged with the address of the client. Others are
	// served as they come.
	ProxyProtocolFrom []string `json:"proxyProtocolFrom,omitempty"`
}

// proxies returns the addresses of ProxyProtocolFrom.
func (l Listener) proxies() ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range l.ProxyProtocolFrom {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, invalid := netip.ParseAddr(text)
			if invalid != nil {
				return nil, fmt.Errorf("proxyProtocolFrom: %q is no address and no CIDR, for example 10.0.0.7 or 10.0.0.0/24", text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// ListenerTLS names PEM files. Changed files are reloaded within a second, unless they cannot be
// used. The broker ends connections whose client certificate has expired, is revoked, or was issued
// by a CA that is no longer in ClientCAFile.
type ListenerTLS struct {
	// CertFile and KeyFile are the broker's certificate chain and key.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`

	// ClientCAFile holds the CAs of client certificates. With it, clients may authenticate by
	// certificate instead of user name and password; certificates of other CAs are refused.
	ClientCAFile string `json:"clientCAFile,omitempty"`

	// CRLFile holds revocation lists of those CAs. Connections with a revoked certificate are
	// refused or ended. A list stays valid after its next update.
	CRLFile string `json:"crlFile,omitempty"`

	// RequireClientCert refuses connections without a client certificate, even with a user name and
	// a password.
	RequireClientCert bool `json:"requireClientCert,omitempty"`
}

// User is a client that connects with a user name and a password. Exactly one of PasswordHash,
// PasswordFile and Password must be set.
type User struct {
	Username string `json:"username"`

	// PasswordHash is a hash as `work-broker passwd` prints it: of bcrypt, or of PBKDF2 as
	// mosquitto_passwd writes it, for random passwords.
	PasswordHash string `json:"passwordHash,omitempty"`

	// PasswordFile names a file that holds such a hash. It is reloaded when it changes.
	PasswordFile string `json:"passwordFile,omitempty"`

	// Password is the password itself, for programs that embed a broker and generate the password
	// when they start. A configuration file cannot set it.
	Password string `json:"-"`

	// Role is agent, source, monitor, observer or joiner.
	Role acl.Role `json:"role"`

	// ID is the cluster of an agent or the id of a source; default Username.
	ID string `json:"id,omitempty"`
}

// Identity returns the identity of an authenticated user.
func (u User) Identity() acl.Identity {
	return acl.Identity{Role: u.Role, ID: cmp.Or(u.ID, u.Username)}
}

// Certificate maps client certificates with a common name to an identity.
type Certificate struct {
	CommonName string   `json:"commonName"`
	Role       acl.Role `json:"role"`
	// ID is the cluster of an agent or the id of a source; default CommonName.
	ID string `json:"id,omitempty"`
}

// Identity returns the identity of a client with such a certificate.
func (c Certificate) Identity() acl.Identity {
	return acl.Identity{Role: c.Role, ID: cmp.Or(c.ID, c.CommonName)}
}

// LoadConfig reads a YAML file. An unknown key is an error. Relative file names in it are relative
// to the directory of the file.
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
	cfg.File = path
	return cfg, nil
}

// ParseConfig decodes the YAML of a configuration file. An unknown key is an error. It leaves
// relative file names as they are, and validation to [New].
func ParseConfig(data []byte) (Config, error) {
	var cfg Config
	if err := yamlfile.Decode(data, &cfg); err != nil {
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
	abs(&c.HTTPCertFile)
	abs(&c.HTTPKeyFile)
	abs(&c.HTTPTokenFile)
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
	c.MaxPacketSize = cmp.Or(c.MaxPacketSize, DefaultMaxPacketSize)
	c.ReceiveMaximum = cmp.Or(c.ReceiveMaximum, DefaultReceiveMaximum)
	c.MaxQueuedMessages = cmp.Or(c.MaxQueuedMessages, DefaultMaxQueuedMessages)
	c.MaxQueuedBytes = cmp.Or(c.MaxQueuedBytes, DefaultMaxQueuedBytes)
	c.MaxTotalBytes = cmp.Or(c.MaxTotalBytes, DefaultMaxTotalBytes)
	c.MaxQueuedMemoryBytes = cmp.Or(c.MaxQueuedMemoryBytes, max(DefaultMaxQueuedMemoryBytes, int64(c.MaxPacketSize)))
	c.MaxTotalMemoryBytes = cmp.Or(c.MaxTotalMemoryBytes, max(DefaultMaxTotalMemoryBytes, c.MaxQueuedMemoryBytes))
	c.MaxSessionExpiry.Duration = cmp.Or(c.MaxSessionExpiry.Duration, DefaultMaxSessionExpiry)
	c.MaxWillDelay.Duration = cmp.Or(c.MaxWillDelay.Duration, DefaultMaxWillDelay)
	c.Limits = c.Limits.WithDefaults()
	c.Logger = cmp.Or(c.Logger, slog.Default())
}

// validReference reports whether s can be sent as a server reference.
func validReference(s string) bool {
	return s != "" && len(s) <= 1024 && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' })
}

// sessionLimits returns the limits of the router.
func (c *Config) sessionLimits() session.Limits {
	return session.Limits{
		MaxQueuedMessages: c.MaxQueuedMessages, MaxQueuedBytes: c.MaxQueuedBytes, MaxTotalBytes: c.MaxTotalBytes,
		MaxQueuedMemory: c.MaxQueuedMemoryBytes, MaxTotalMemory: c.MaxTotalMemoryBytes,
		MaxExpiry: seconds(c.MaxSessionExpiry), MaxWillDelay: seconds(c.MaxWillDelay),
	}
}

// seconds returns d in seconds, which MQTT counts with 32 bits.
func seconds(d metav1.Duration) uint32 {
	return uint32(min(max(d.Duration/time.Second, 1), session.NeverExpires))
}

// validate reports every fault at once. It does no I/O.
func (c *Config) validate() error {
	var errs []error
	clientCA := false
	if len(c.Listeners) == 0 {
		errs = append(errs, errors.New("listeners: at least one is required, for instance {address: 127.0.0.1:1883}"))
	}
	for i, l := range c.Listeners {
		if err := l.validate(); err != nil {
			errs = append(errs, fmt.Errorf("listeners[%d]: %w", i, err))
		}
		clientCA = clientCA || l.TLS != nil && l.TLS.ClientCAFile != ""
	}
	if len(c.Users) == 0 && !clientCA {
		errs = append(errs, errors.New("users: at least one user, or a listener with a clientCAFile, is required; anonymous clients are refused"))
	}
	errs = append(errs, c.validateIdentities()...)
	if c.MaxPacketSize < 1024 || c.MaxPacketSize > 268435460 {
		errs = append(errs, fmt.Errorf("maxPacketSize: must be 1024 to 268435460 bytes, got %d", c.MaxPacketSize))
	}
	if c.MaxQueuedMessages < 0 {
		errs = append(errs, fmt.Errorf("maxQueuedMessages: must not be negative, got %d", c.MaxQueuedMessages))
	}
	for _, limit := range []struct {
		name  string
		bytes int64
	}{
		{"maxQueuedBytes", c.MaxQueuedBytes}, {"maxTotalBytes", c.MaxTotalBytes},
		{"maxQueuedMemoryBytes", c.MaxQueuedMemoryBytes}, {"maxTotalMemoryBytes", c.MaxTotalMemoryBytes},
	} {
		if limit.bytes < int64(c.MaxPacketSize) {
			errs = append(errs, fmt.Errorf("%s: must be at least maxPacketSize (%d bytes), got %d", limit.name, c.MaxPacketSize, limit.bytes))
		}
	}
	for name, d := range map[string]metav1.Duration{"maxSessionExpiry": c.MaxSessionExpiry, "maxWillDelay": c.MaxWillDelay} {
		if d.Duration < time.Second {
			errs = append(errs, fmt.Errorf("%s: must be at least 1s, got %s", name, d.Duration))
		}
	}
	if c.Drain != nil && !validReference(c.Drain.ServerReference) {
		errs = append(errs, errors.New("drain: serverReference is required, the other server as host:port, of at most 1024 bytes in UTF-8"))
	}
	return errors.Join(append(errs, c.Limits.Validate(), c.validateHTTP())...)
}

// validateIdentities validates users and certificates.
func (c *Config) validateIdentities() (errs []error) {
	names := map[string]bool{}
	for i, u := range c.Users {
		if err := u.validate(); err != nil {
			errs = append(errs, fmt.Errorf("users[%d] (%s): %w", i, u.Username, err))
		}
		if names[u.Username] {
			errs = append(errs, fmt.Errorf("users[%d]: username %q is listed twice", i, u.Username))
		}
		names[u.Username] = true
	}
	clear(names)
	for i, cert := range c.Certificates {
		if cert.CommonName == "" {
			errs = append(errs, fmt.Errorf("certificates[%d]: commonName is required", i))
		}
		if names[cert.CommonName] {
			errs = append(errs, fmt.Errorf("certificates[%d]: commonName %q is listed twice", i, cert.CommonName))
		}
		names[cert.CommonName] = true
		if err := cert.Identity().Validate(); err != nil {
			errs = append(errs, fmt.Errorf("certificates[%d] (%s): %w", i, cert.CommonName, err))
		}
		if cert.Role == acl.Joiner {
			errs = append(errs, fmt.Errorf("certificates[%d] (%s): role joiner is for clusters that have no certificate yet; list a user", i, cert.CommonName))
		}
	}
	return errs
}

func (c *Config) validateHTTP() error {
	if c.HTTPAddress == "" {
		if c.HTTPExposed {
			return errors.New("httpExposed: requires an httpAddress")
		}
		return nil
	}
	loopback, err := isLoopback(c.HTTPAddress)
	if err != nil {
		return fmt.Errorf("httpAddress: %w", err)
	}
	if (c.HTTPCertFile == "") != (c.HTTPKeyFile == "") {
		return errors.New("httpCertFile and httpKeyFile: set both or neither")
	}
	if !loopback && !c.HTTPExposed && (c.HTTPCertFile == "" || c.HTTPTokenFile == "") {
		return fmt.Errorf("httpAddress: %s is not a loopback address; set httpCertFile, httpKeyFile and httpTokenFile, use 127.0.0.1, or serve metrics without authentication by httpExposed: true", c.HTTPAddress)
	}
	return nil
}

func (l Listener) validate() error {
	loopback, err := isLoopback(l.Address)
	if err != nil {
		return fmt.Errorf("address: %w", err)
	}
	if l.WebSocketPath != "" && (l.WebSocketPath[0] != '/' || strings.ContainsAny(l.WebSocketPath, "?#% ")) {
		return fmt.Errorf("webSocketPath: %q is no path of a URL, for example /mqtt", l.WebSocketPath)
	}
	if _, err := l.proxies(); err != nil {
		return err
	}
	if l.TLS == nil {
		if !loopback {
			return fmt.Errorf("address %s is not a loopback address and has no TLS; set tls.certFile and tls.keyFile, or listen on 127.0.0.1", l.Address)
		}
		return nil
	}
	if l.TLS.CertFile == "" || l.TLS.KeyFile == "" {
		return errors.New("tls: certFile and keyFile are both required")
	}
	if l.TLS.RequireClientCert && l.TLS.ClientCAFile == "" {
		return errors.New("tls: requireClientCert needs a clientCAFile")
	}
	if l.TLS.CRLFile != "" && l.TLS.ClientCAFile == "" {
		return errors.New("tls: crlFile needs a clientCAFile")
	}
	return nil
}

func (u User) validate() error {
	if u.Username == "" {
		return errors.New("username is required")
	}
	given := 0
	for _, s := range []string{u.PasswordHash, u.PasswordFile, u.Password} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return errors.New("exactly one of passwordHash and passwordFile is required; generate a hash with `work-broker passwd`")
	}
	if u.PasswordHash != "" {
		if err := validateHash(u.PasswordHash); err != nil {
			return fmt.Errorf("passwordHash is not a hash of bcrypt or PBKDF2: %w; generate one with `work-broker passwd`", err)
		}
	}
	return u.Identity().Validate()
}

// isLoopback reports whether only this machine can reach address (host:port).
func isLoopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	return serve.IsLoopback(host), nil
}
