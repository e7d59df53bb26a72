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

// podNamespaceFile contains the name of a pod's namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Options choose the Lease and its times. [NewOptions] sets the defaults.
type Options struct {
	// Disabled makes [Run] run the work without a Lease.
	Disabled bool
	// Namespace of the Lease.
	Namespace string
	// Name of the Lease. Replicas of one name exclude each other.
	Name string
	// Identity of this process, unique among all.
	Identity string
	// LeaseDuration is the time after the last renewal at which a standby takes over; whole
	// seconds.
	LeaseDuration time.Duration
	// RenewDeadline is the time after the last renewal at which a leader stops its work, which must
	// end within LeaseDuration.
	RenewDeadline time.Duration
	// RetryPeriod is the time between renewals, and between attempts; at most half of
	// RenewDeadline.
	RetryPeriod time.Duration
}

// NewOptions returns the defaults: the Lease name in the pod's own namespace, or in kube-system
// outside of a pod, and the host name and a random part as identity. name may be set later.
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

// podNamespace returns the pod's namespace from file, or the default.
func podNamespace(file string) string {
	data, err := os.ReadFile(file)
	if namespace := strings.TrimSpace(string(data)); err == nil && namespace != "" {
		return namespace
	}
	return DefaultNamespace
}

// AddFlags adds the flags that set o, with o's current values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Disabled, "disable-leader-election", o.Disabled,
		"run without a Lease; only for a single replica")
	fs.StringVar(&o.Namespace, "leader-election-namespace", o.Namespace, "namespace of the Lease (default the pod's own)")
	fs.StringVar(&o.Name, "leader-election-name", o.Name, "name of the Lease: of all replicas with this name one is active (default named after the cluster or source)")
	fs.DurationVar(&o.LeaseDuration, "leader-election-lease-duration", o.LeaseDuration,
		"time after which a standby takes over from a leader that vanished, in whole seconds; after a clean stop it takes over at once")
	fs.DurationVar(&o.RenewDeadline, "leader-election-renew-deadline", o.RenewDeadline,
		"time after which a leader that cannot renew the Lease stops; less than the lease duration")
	fs.DurationVar(&o.RetryPeriod, "leader-election-retry-period", o.RetryPeriod,
		"time between renewals of the Lease; at most half the renew deadline")
}

// Validate reports every fault of o by flag, with what to do.
func (o *Options) Validate() []error {
	if o.Disabled {
		return nil
	}
	var errs []error
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--leader-election-namespace %q: %s", o.Namespace, problems[0]))
	}
	if problems := validation.IsDNS1123Subdomain(o.Name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("--leader-election-name %q: %s", o.Name, problems[0]))
	}
	if o.Identity == "" {
		errs = append(errs, errors.New("leader election: the identity of this replica is empty"))
	}
	if o.LeaseDuration < time.Second || o.LeaseDuration%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--leader-election-lease-duration must be whole seconds and at least 1s, got %s", o.LeaseDuration))
	}
	if o.RenewDeadline <= 0 || o.RenewDeadline >= o.LeaseDuration {
		errs = append(errs, fmt.Errorf("--leader-election-renew-deadline must be above 0 and below the lease duration of %[2]s, got %[1]s",
			o.RenewDeadline, o.LeaseDuration))
	}
	if o.RetryPeriod <= 0 || 2*o.RetryPeriod > o.RenewDeadline {
		errs = append(errs, fmt.Errorf("--leader-election-retry-period must be above 0 and at most half the renew deadline of %[2]s, got %[1]s",
			o.RetryPeriod, o.RenewDeadline))
	}
	return errs
}
