package plane

import (
	"errors"
	"fmt"
	"path/filepath"
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
	// Port is the TCP port on 127.0.0.1. 0 means the port of the last run
	// when that is free, else any free one.
	Port int
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
	if c.Nodes < 0 || c.Nodes > maxNodes {
		fault("--nodes=%d must be 0 to %d", c.Nodes, maxNodes)
	}
	if c.Role == Hub && c.Nodes > 0 {
		fault("--nodes=%d: a hub has no nodes; leave it out, or use --role=spoke", c.Nodes)
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
