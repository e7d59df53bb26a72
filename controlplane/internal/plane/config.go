package plane

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Role is what a control plane is for.
type Role string

const (
	// Spoke is a cluster: all of Kubernetes, with simulated nodes.
	Spoke Role = "spoke"
	// Hub is an API without pods and nodes.
	Hub Role = "hub"
)

func (r Role) valid() bool { return r == Spoke || r == Hub }

// Config says which control plane to run, and where.
type Config struct {
	// Role is Spoke or Hub; required.
	Role Role
	// Dir is the directory of this control plane, which is created if it does not exist; required.
	Dir string
	// Name is the name of the kubeconfig's context, a DNS label; default Role.
	Name string
	// BindAddress is the IP address that the API server listens on; default 127.0.0.1. 0.0.0.0 or
	// :: means all addresses of the machine.
	BindAddress string
	// Port is the TCP port of the API server. 0 means the port of the last run if it is free, else
	// any free port.
	Port int
	// Hosts are more DNS names and IP addresses in the certificate of the API server.
	Hosts []string
	// Access are kubeconfigs for other users, which are written at every start, before the control
	// plane is ready. Their server is the first of Hosts; default the administrator's server.
	Access []Access
	// Apply are files, directories and kustomizations that kubectl applies at every start, in this
	// order, before the control plane is ready.
	Apply []string
	// Nodes is the number of simulated nodes, 0 to 1000. Spokes only.
	Nodes int
	// Fsync makes etcd wait for the disk at each write. Without it, data survives a crash of any
	// process, but not of the machine.
	Fsync bool
	// Datastore is the URL of a PostgreSQL database that has the data in place of etcd, with its
	// password; see [CheckDatastore]. The next runs must use the same database.
	Datastore string
	// StartTimeout limits the time until the control plane is ready; default 2 minutes.
	StartTimeout time.Duration
	// Progress is called with a line for each step of start and stop; nil discards them.
	Progress func(line string)
	// Ready is called once when the control plane is ready.
	Ready func(Running)
}

// Access is a kubeconfig of a user, whom RBAC authorizes.
type Access struct {
	User string
	// File is written with mode 0600; its directory must exist.
	File string
}

// Running describes a control plane that is ready.
type Running struct {
	// Kubeconfig is the absolute path of the administrator's kubeconfig.
	Kubeconfig string
	// Server is the API server's URL.
	Server string
	// Took is the time from the call of Run until the control plane was ready.
	Took time.Duration
}

const (
	loopback            = "127.0.0.1"
	maxNodes            = 1000
	defaultStartTimeout = 2 * time.Minute
)

// complete sets defaults, makes paths absolute and validates c. It reports every fault at once.
func (c Config) complete() (Config, error) {
	c.setDefaults()
	errs := append(c.makeAbsolute(), c.validate()...)
	return c, errors.Join(errs...)
}

func (c *Config) setDefaults() {
	c.Name = cmp.Or(c.Name, string(c.Role))
	c.BindAddress = cmp.Or(c.BindAddress, loopback)
	c.StartTimeout = cmp.Or(c.StartTimeout, defaultStartTimeout)
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Ready == nil {
		c.Ready = func(Running) {}
	}
}

func (c *Config) makeAbsolute() (errs []error) {
	absolute := func(flag string, path *string) {
		abs, err := filepath.Abs(*path)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s=%s: %w", flag, *path, err))
			return
		}
		*path = abs
	}
	if c.Dir != "" {
		absolute("--dir", &c.Dir)
	}
	c.Apply, c.Access = slices.Clone(c.Apply), slices.Clone(c.Access)
	for i := range c.Apply {
		absolute("--apply", &c.Apply[i])
	}
	for i, a := range c.Access {
		if a.User == "" || a.File == "" {
			errs = append(errs, fmt.Errorf("--kubeconfig-for=%s=%s must be USER=FILE", a.User, a.File))
			continue
		}
		absolute("--kubeconfig-for", &c.Access[i].File)
	}
	return errs
}

func (c *Config) validate() (errs []error) {
	invalid := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !c.Role.valid() {
		invalid("--role must be hub or spoke, not %q", c.Role)
	}
	if c.Dir == "" {
		invalid("--dir must name the directory of the control plane")
	}
	if c.Name != string(c.Role) && len(validation.IsDNS1123Label(c.Name)) > 0 {
		invalid("--name=%s must be 1 to 63 lower-case letters, digits and dashes, with no dash at either end", c.Name)
	}
	if c.Port < 0 || c.Port > 65535 {
		invalid("--port=%d must be 0 (any free port) to 65535", c.Port)
	}
	if net.ParseIP(c.BindAddress) == nil {
		invalid("--bind-address=%s must be an IP address; 0.0.0.0 means all addresses", c.BindAddress)
	}
	for _, host := range c.Hosts {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			invalid("--hostname=%s must be a DNS name or an IP address", host)
		}
	}
	if c.Nodes < 0 || c.Nodes > maxNodes {
		invalid("--nodes=%d must be 0 to %d", c.Nodes, maxNodes)
	}
	if c.Role == Hub && c.Nodes > 0 {
		invalid("--nodes=%d: a hub has no nodes; leave it out, or use --role=spoke", c.Nodes)
	}
	for _, path := range c.Apply {
		if _, err := os.Stat(path); err != nil {
			invalid("--apply: %w", err)
		}
	}
	if c.Datastore != "" {
		if err := CheckDatastore(c.Datastore); err != nil {
			errs = append(errs, err)
		}
	}
	if c.StartTimeout < 0 {
		invalid("--start-timeout=%s must not be negative", c.StartTimeout)
	}
	return errs
}
