// Package certificates issues and renews the certificates of hubs, brokers and agents from one
// authority, in the directories that they read them from.
//
// A YAML file lists the certificates (docs/certificates.md):
//
//	config, err := certificates.Load(path)
//	...
//	manager, err := certificates.New(certificates.ManagerConfig{Config: config, Dir: filepath.Dir(path)})
//	report, err := manager.Ensure()
//
// Ensure issues missing certificates, renews those that are due and keeps the others. Rotate
// replaces the authority in steps, Revoke revokes certificates, Status and Secret read them. All
// state is in files, in PEM except for the list of issued certificates:
//
//	AUTHORITY/ca.crt, ca.key, ca.crl   the issuing authority and its revocation list
//	AUTHORITY/next.*, former.*         the next or the previous one, while it is being replaced
//	AUTHORITY/issued                   serial numbers of issued certificates that have not expired
//	NAME/tls.crt, tls.key              certificate and key
//	NAME/ca.crt, ca.crl                trusted authorities; for a broker, their revocation lists
package certificates

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/runtime/yamlfile"
)

// Defaults of [Config].
const (
	DefaultDirectory         = "authority"
	DefaultAuthorityName     = "workwire"
	DefaultAuthorityValidity = 10 * 365 * 24 * time.Hour
	DefaultValidity          = 90 * 24 * time.Hour
)

// Config lists the certificates of an installation, and configures their authority.
type Config struct {
	Authority Authority `json:"authority,omitempty"`

	// Validity is the default validity of certificates; default 90 days.
	Validity metav1.Duration `json:"validity,omitempty"`

	// Certificates are the certificates to issue, at least one.
	Certificates []Certificate `json:"certificates"`
}

// Authority configures the authority that issues the certificates.
type Authority struct {
	// Directory holds its certificate and key; default "authority".
	Directory string `json:"directory,omitempty"`

	// Name is the beginning of its common name, at most 50 bytes; default "workwire".
	Name string `json:"name,omitempty"`

	// Validity is the validity of its own certificate; default ten years.
	Validity metav1.Duration `json:"validity,omitempty"`
}

// Role is the use of a certificate.
type Role string

// The roles.
const (
	Broker  Role = "broker"  // an MQTT broker
	Server  Role = "server"  // a server of HTTPS, such as the agent's metrics
	Source  Role = "source"  // the client of a hub, or another source
	Agent   Role = "agent"   // the client of a cluster's agent
	Monitor Role = "monitor" // a client that reads metrics
	// Observer is a client that reads all events.
	Observer Role = "observer"
)

// units are the organizational units by which the broker recognizes the roles of clients.
var units = map[Role]string{Source: "sources", Agent: "agents", Monitor: "monitors", Observer: "observers"}

// isServer reports whether the certificate is for a server, not for a client.
func (r Role) isServer() bool { return r == Broker || r == Server }

// Certificate configures one certificate.
type Certificate struct {
	// Name is a DNS label, unique among the certificates: the cluster of an agent, the id of a
	// source.
	Name string `json:"name"`

	// CommonName is the common name; default Name. broker/mosquitto needs others for sources.
	CommonName string `json:"commonName,omitempty"`

	// Role is the use of the certificate.
	Role Role `json:"role"`

	// Hosts are the DNS names and IP addresses of a broker or server, and empty for other roles.
	Hosts []string `json:"hosts,omitempty"`

	// Directory holds its files; default Name.
	Directory string `json:"directory,omitempty"`

	// Validity is the validity of the certificate, at least 1s; default Config.Validity.
	Validity metav1.Duration `json:"validity,omitempty"`
}

// Load reads a configuration file; see [Parse].
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("read the list of certificates: %w", err)
	}
	config, err := Parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("list of certificates %s: %w", path, err)
	}
	return config, nil
}

// Parse decodes the YAML of a configuration file, sets defaults, and reports every fault at once.
// An unknown key is an error. Relative directories stay relative.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := yamlfile.Decode(data, &c); err != nil {
		return Config{}, fmt.Errorf("decode YAML: %w", err)
	}
	c.setDefaults()
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) setDefaults() {
	c.Authority.Directory = cmp.Or(c.Authority.Directory, DefaultDirectory)
	c.Authority.Name = cmp.Or(c.Authority.Name, DefaultAuthorityName)
	c.Authority.Validity.Duration = cmp.Or(c.Authority.Validity.Duration, DefaultAuthorityValidity)
	c.Validity.Duration = cmp.Or(c.Validity.Duration, DefaultValidity)
	for i := range c.Certificates {
		cert := &c.Certificates[i]
		cert.CommonName = cmp.Or(cert.CommonName, cert.Name)
		cert.Directory = cmp.Or(cert.Directory, cert.Name)
		cert.Validity = cmp.Or(cert.Validity, c.Validity)
	}
}

func (c *Config) validate() error {
	var errs []error
	invalid := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Authority.Name) > 50 {
		invalid("authority.name: must be at most 50 bytes, got %d", len(c.Authority.Name))
	}
	if len(c.Certificates) == 0 {
		invalid("certificates: at least one is required, for instance {name: cluster1, role: agent}")
	}
	known, directories := map[string]bool{}, map[string]string{filepath.Clean(c.Authority.Directory): "the authority"}
	for i, cert := range c.Certificates {
		if err := cert.validate(); err != nil {
			invalid("certificates[%d] (%s): %w", i, cert.Name, err)
		}
		if known[cert.Name] {
			invalid("certificates[%d]: name %q is listed twice", i, cert.Name)
		}
		known[cert.Name] = true
		if owner, taken := directories[filepath.Clean(cert.Directory)]; taken {
			invalid("certificates[%d] (%s): directory %s is used by %s; set another directory", i, cert.Name, cert.Directory, owner)
		}
		directories[filepath.Clean(cert.Directory)] = cert.Name
		if cert.Validity.Duration > c.Authority.Validity.Duration {
			invalid("certificates[%d] (%s): validity %s is longer than the authority's %s", i, cert.Name, cert.Validity.Duration, c.Authority.Validity.Duration)
		}
	}
	return errors.Join(errs...)
}

func (c Certificate) validate() error {
	var errs []error
	invalid := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(validation.IsDNS1123Label(c.Name)) > 0 { // an id at the broker and the name of a Secret
		invalid("name %q must consist of 1 to 63 lower-case letters, digits and dashes, and must not begin or end with a dash", c.Name)
	}
	if len(c.CommonName) > 64 || strings.ContainsFunc(c.CommonName, func(r rune) bool { return r <= ' ' || r > '~' }) {
		invalid("commonName %q must consist of at most 64 ASCII characters, without spaces", c.CommonName)
	}
	if c.Validity.Duration < time.Second {
		invalid("validity %s is too short; use at least 1s, usually weeks", c.Validity.Duration)
	}
	switch {
	case c.Role != Broker && c.Role != Server && units[c.Role] == "":
		invalid("role %q is unknown; use broker, source, agent, monitor, observer or server", c.Role)
	case c.Role.isServer() && len(c.Hosts) == 0:
		invalid("hosts: at least one is required; list the DNS names and IP addresses that clients connect to")
	case !c.Role.isServer() && len(c.Hosts) > 0:
		invalid("hosts: must be empty for the certificate of a client")
	}
	for _, host := range c.Hosts {
		name := strings.ToLower(strings.TrimPrefix(host, "*."))
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			invalid("hosts: %q is neither a DNS name nor an IP address; remove a port", host)
		}
	}
	return errors.Join(errs...)
}
