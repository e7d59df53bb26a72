// Package certificates keeps the certificates of hubs, brokers and agents, all
// from one authority, in directories that they read them from.
//
// One YAML file says which certificates there are (docs/certificates.md):
//
//	config, err := certificates.Load(path)
//	...
//	manager, err := certificates.New(certificates.ManagerConfig{Config: config, Dir: filepath.Dir(path)})
//	report, err := manager.Ensure()
//
// Ensure issues what is missing, renews what is due and leaves the rest alone.
// Rotate replaces the authority in steps, Revoke takes certificates back, Status
// and Secret show what there is. Nothing is kept but files, all in PEM except
// the list of what was issued:
//
//	AUTHORITY/ca.crt, ca.key, ca.crl   the authority that issues, and what it has revoked
//	AUTHORITY/next.*, former.*         another one, while the authority is being replaced
//	AUTHORITY/issued                   serial numbers of certificates that have not expired
//	NAME/tls.crt, tls.key              certificate and key
//	NAME/ca.crt, ca.crl                authorities to trust; a broker gets the revoked ones too
package certificates

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Defaults of [Config].
const (
	DefaultDirectory         = "authority"
	DefaultAuthorityName     = "workwire"
	DefaultAuthorityValidity = 10 * 365 * 24 * time.Hour
	DefaultValidity          = 90 * 24 * time.Hour
)

// Config lists the certificates of an installation and says who issues them.
type Config struct {
	Authority Authority `json:"authority,omitempty"`

	// Validity of certificates, unless one says otherwise: 90 days when 0.
	Validity metav1.Duration `json:"validity,omitempty"`

	// Certificates to keep, at least one.
	Certificates []Certificate `json:"certificates"`
}

// Authority is who issues the certificates.
type Authority struct {
	// Directory of its certificate and key: "authority" when empty.
	Directory string `json:"directory,omitempty"`

	// Name that its common name begins with: "workwire" when empty.
	Name string `json:"name,omitempty"`

	// Validity of its own certificate: ten years when 0.
	Validity metav1.Duration `json:"validity,omitempty"`
}

// Role is what a certificate is for.
type Role string

// The roles.
const (
	Broker  Role = "broker"  // an MQTT broker
	Server  Role = "server"  // a server of HTTPS, such as the agent's metrics
	Source  Role = "source"  // the client of a hub, or another source
	Agent   Role = "agent"   // the client of a cluster's agent
	Monitor Role = "monitor" // a client that reads the broker's figures
)

// units are the organisational units by which the broker knows the role of a
// client, for each role that is one.
var units = map[Role]string{Source: "sources", Agent: "agents", Monitor: "monitors"}

func (r Role) serves() bool { return r == Broker || r == Server }

// Certificate is one certificate to keep.
type Certificate struct {
	// Name is what it is called here, unique among the certificates, and its common
	// name: the cluster of an agent, the id of a source.
	Name string `json:"name"`

	// CommonName is another common name, for brokers that know clients by others, as
	// Mosquitto knows sources with the access rules of broker/mosquitto.
	CommonName string `json:"commonName,omitempty"`

	// Role says what it is for.
	Role Role `json:"role"`

	// Hosts are the DNS names and IP addresses of a server: required for the roles
	// broker and server, refused for the others.
	Hosts []string `json:"hosts,omitempty"`

	// Directory of its files: the name when empty.
	Directory string `json:"directory,omitempty"`

	// Validity of the certificate; that of [Config] when 0.
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

// Parse decodes the YAML of a configuration file strictly, fills in defaults,
// and reports every fault at once. Directories stay as they are in it.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return Config{}, fmt.Errorf("decode YAML: %w", err)
	}
	c.setDefaults()
	if err := c.validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c *Config) setDefaults() {
	setDefault(&c.Authority.Directory, DefaultDirectory)
	setDefault(&c.Authority.Name, DefaultAuthorityName)
	setDefault(&c.Authority.Validity.Duration, DefaultAuthorityValidity)
	setDefault(&c.Validity.Duration, DefaultValidity)
	for i := range c.Certificates {
		cert := &c.Certificates[i]
		setDefault(&cert.CommonName, cert.Name)
		setDefault(&cert.Directory, cert.Name)
		setDefault(&cert.Validity, c.Validity)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// names are common names that serve as an id at the broker, as a DNS label and as
// the name of a Secret alike.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(c.Authority.Name) > 50 {
		fault("authority.name: %d bytes: use at most 50", len(c.Authority.Name))
	}
	if len(c.Certificates) == 0 {
		fault("certificates: none is listed; add at least one, for instance {name: cluster1, role: agent}")
	}
	known, directories := map[string]bool{}, map[string]string{filepath.Clean(c.Authority.Directory): "the authority"}
	for i, cert := range c.Certificates {
		if err := cert.validate(); err != nil {
			fault("certificates[%d] (%s): %w", i, cert.Name, err)
		}
		if known[cert.Name] {
			fault("certificates[%d]: name %q is listed twice", i, cert.Name)
		}
		known[cert.Name] = true
		if owner, taken := directories[filepath.Clean(cert.Directory)]; taken {
			fault("certificates[%d] (%s): directory %s is that of %s: give it its own", i, cert.Name, cert.Directory, owner)
		}
		directories[filepath.Clean(cert.Directory)] = cert.Name
		if cert.Validity.Duration > c.Authority.Validity.Duration {
			fault("certificates[%d] (%s): validity %s is longer than the authority's %s", i, cert.Name, cert.Validity.Duration, c.Authority.Validity.Duration)
		}
	}
	return errors.Join(faults...)
}

func (c Certificate) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !names.MatchString(c.Name) {
		fault("name %q must consist of 1 to 63 lower-case letters, digits and dashes, and begin and end with none of the latter", c.Name)
	}
	if len(c.CommonName) > 64 || strings.ContainsFunc(c.CommonName, func(r rune) bool { return r <= ' ' || r > '~' }) {
		fault("commonName %q must consist of at most 64 ASCII characters, without spaces", c.CommonName)
	}
	if c.Validity.Duration < time.Second {
		fault("validity %s is too short: use at least 1s, usually weeks", c.Validity.Duration)
	}
	switch {
	case c.Role != Broker && c.Role != Server && units[c.Role] == "":
		fault("role %q is unknown: use broker, source, agent, monitor or server", c.Role)
	case c.Role.serves() && len(c.Hosts) == 0:
		fault("hosts: none is given; list the DNS names and IP addresses by which clients reach it")
	case !c.Role.serves() && len(c.Hosts) > 0:
		fault("hosts: the certificate of a client has none: remove them")
	}
	for _, host := range c.Hosts {
		name := strings.ToLower(strings.TrimPrefix(host, "*."))
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(name)) > 0 {
			fault("hosts: %q is neither a DNS name nor an IP address; ports do not belong here", host)
		}
	}
	return errors.Join(faults...)
}
