package plane

import (
	"errors"
	"fmt"
	"net"
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
	// Role is Spoke or Hub. Required.
	Role Role
	// Dir is the directory that holds everything of this control plane. It
	// is made when missing. Required.
	Dir string
	// Name is the name of the kubeconfig's context: letters of a DNS label.
	// Empty means the role.
	Name string
	// BindAddress is the IP address that the API server listens on. Empty
	// means 127.0.0.1; 0.0.0.0 or :: means every address of the machine.
	BindAddress string
	// Port is the TCP port there. 0 means the port of the last run when that
	// is free, else any free one.
	Port int
	// Hosts are further DNS names and IP addresses that clients reach the API
	// server by: its certificate is valid for them too.
	Hosts []string
	// Access are kubeconfigs to write for other users, before the control
	// plane is ready, at every start. Their server is the first of Hosts, or
	// what the administrator's is.
	Access []Access
	// Apply are files, folders and kustomizations that kubectl applies, in this order,
	// at every start, before the control plane is ready.
	Apply []string
	// Nodes is the number of simulated nodes, 0 to 1000. Spokes only.
	Nodes int
	// Fsync makes etcd wait for the disk at each write. Without it, data
	// survives the end of any process, but not of the machine.
	Fsync bool
	// StartTimeout bounds the time until the control plane is ready. 0 means
	// two minutes.
	StartTimeout time.Duration
	// Progress takes one line per step while starting and stopping. nil
	// means silence.
	Progress func(line string)
	// Ready is called once, when the control plane is ready for use.
	Ready func(Running)
}

// Access is a kubeconfig for a user, for whom RBAC decides.
type Access struct {
	User string
	// File is written with mode 0600; its folder must be there.
	File string
}

// Running describes a control plane that is ready for use.
type Running struct {
	// Kubeconfig is the absolute path of the administrator's kubeconfig.
	Kubeconfig string
	// Server is the API server's URL.
	Server string
	// Took is the time from the call of Run until ready.
	Took time.Duration
}

const (
	loopback            = "127.0.0.1"
	maxNodes            = 1000
	defaultStartTimeout = 2 * time.Minute
)

// complete checks c and fills in what was left out. It reports all faults.
func (c Config) complete() (Config, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !c.Role.valid() {
		fault("--role must be hub or spoke, not %q", c.Role)
	}
	if c.Dir == "" {
		fault("--dir must name the directory that is to hold the control plane")
	} else if abs, err := filepath.Abs(c.Dir); err != nil {
		fault("--dir=%s: %w", c.Dir, err)
	} else {
		c.Dir = abs
	}
	if c.Name == "" {
		c.Name = string(c.Role)
	} else if len(validation.IsDNS1123Label(c.Name)) > 0 {
		fault("--name=%s must be 1 to 63 lower-case letters, digits and dashes, with no dash at either end", c.Name)
	}
	if c.Port < 0 || c.Port > 65535 {
		fault("--port=%d must be 0 (any free port) to 65535", c.Port)
	}
	if c.BindAddress == "" {
		c.BindAddress = loopback
	} else if net.ParseIP(c.BindAddress) == nil {
		fault("--bind-address=%s must be an IP address, 0.0.0.0 for all of the machine", c.BindAddress)
	}
	for _, host := range c.Hosts {
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 {
			fault("--hostname=%s must be a DNS name or an IP address", host)
		}
	}
	if c.Nodes < 0 || c.Nodes > maxNodes {
		fault("--nodes=%d must be 0 to %d", c.Nodes, maxNodes)
	}
	if c.Role == Hub && c.Nodes > 0 {
		fault("--nodes=%d: a hub has no nodes; leave it out, or use --role=spoke", c.Nodes)
	}
	absolute := func(flag, path string) string {
		abs, err := filepath.Abs(path)
		if err != nil {
			fault("%s=%s: %w", flag, path, err)
		}
		return abs
	}
	c.Apply, c.Access = slices.Clone(c.Apply), slices.Clone(c.Access)
	for i, path := range c.Apply {
		c.Apply[i] = absolute("--apply", path)
	}
	for i, a := range c.Access {
		if a.User == "" || a.File == "" {
			fault("--kubeconfig-for=%s=%s must be USER=FILE", a.User, a.File)
		}
		c.Access[i].File = absolute("--kubeconfig-for", a.File)
	}
	if c.StartTimeout < 0 {
		fault("--start-timeout=%s must not be negative", c.StartTimeout)
	} else if c.StartTimeout == 0 {
		c.StartTimeout = defaultStartTimeout
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Ready == nil {
		c.Ready = func(Running) {}
	}
	return c, errors.Join(faults...)
}
