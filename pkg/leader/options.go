package leader

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Defaults of [Options].
const (
	DefaultNamespace     = "kube-system"
	DefaultLeaseDuration = 15 * time.Second
	DefaultRenewDeadline = 10 * time.Second
	DefaultRetryPeriod   = 2 * time.Second
)

// podNamespaceFile is where a pod finds the name of its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options choose the Lease and its times. Make them with [NewOptions], which
// sets the defaults.
type Options struct {
	// Disabled makes [Run] run its work without any Lease.
	Disabled bool
	// Namespace of the Lease.
	Namespace string
	// Name of the Lease. Replicas of one name exclude each other.
	Name string
	// Identity of this replica; no two replicas may share one.
	Identity string
	// LeaseDuration is how long standbys wait since the last renewal before
	// they take over from a leader that has vanished; whole seconds.
	LeaseDuration time.Duration
	// RenewDeadline is how long a leader goes on without a renewal before it
	// stops its work; less than LeaseDuration, since the difference is what the
	// work has to end in.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and between attempts that
	// failed; at most half of RenewDeadline.
	RetryPeriod time.Duration
}

// NewOptions gives the defaults: the Lease name in the pod's own namespace, or
// in kube-system outside of a pod, an identity made of the host's name and a
// random part, and times of 15, 10 and 2 seconds. name may be set later.
func NewOptions(name string) Options {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return Options{
		Namespace:     podNamespace(podNamespaceFile),
		Name:          name,
		Identity:      host + "_" + uuid.NewString(),
		LeaseDuration: DefaultLeaseDuration,
		RenewDeadline: DefaultRenewDeadline,
		RetryPeriod:   DefaultRetryPeriod,
	}
}

// podNamespace reads the pod's namespace from file.
func podNamespace(file string) string {
	data, err := os.ReadFile(file)
	if namespace := strings.TrimSpace(string(data)); err == nil && namespace != "" {
		return namespace
	}
	return DefaultNamespace
}

// AddFlags adds the flags that set o, with o's present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Disabled, "disable-leader-election", o.Disabled,
		"run without a Lease; only with a single replica")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "namespace of the Lease; default: the pod's own")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "name of the Lease, of whose replicas one works at a time; default: named after what this replica serves")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"how long a standby waits for a leader that vanished, in whole seconds; after a clean stop it does not wait")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"how long a leader goes on when it can not renew the Lease; less than the lease duration")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod,
		"time between renewals of the Lease; at most half the renew deadline")
}

// Validate reports every fault of o, by flag and with what to do.
func (o *Options) Validate() []error {
	if o.Disabled {
		return nil
	}
	var faults []error
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		faults = append(faults, fmt.Errorf("--leader-election-namespace %q: %s", o.Namespace, problems[0]))
	}
	if problems := validation.IsDNS1123Subdomain(o.Name); len(problems) > 0 {
		faults = append(faults, fmt.Errorf("--leader-election-name %q: %s", o.Name, problems[0]))
	}
	if o.Identity == "" {
		faults = append(faults, errors.New("leader election: the identity of this replica is empty"))
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		faults = append(faults, fmt.Errorf("--leader-election-lease-duration %s: want whole seconds, at least 1s", o.LeaseDuration))
	}
	if o.RenewDeadline <= 0 || o.RenewDeadline >= o.LeaseDuration {
		faults = append(faults, fmt.Errorf("--leader-election-renew-deadline %s: want more than 0 and less than the lease duration, %s",
			o.RenewDeadline, o.LeaseDuration))
	}
	if o.RetryPeriod <= 0 || 2*o.RetryPeriod > o.RenewDeadline {
		faults = append(faults, fmt.Errorf("--leader-election-retry-period %s: want more than 0 and at most half the renew deadline, %s",
			o.RetryPeriod, o.RenewDeadline))
	}
	return faults
}
