package dashboard

import (
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/serve"
)

// Options configure the listener by flags.
type Options struct {
	// Address is the host:port to listen on; port 0 chooses a free port. Empty or "0" disables the
	// dashboard.
	Address string
	// CertFile and KeyFile are the listener's certificate and key in PEM, reloaded when they change.
	// Set both, or neither for plain HTTP on loopback.
	CertFile, KeyFile string
}

// AddFlags adds the flags that set o, with the current values of o as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "dashboard-address", o.Address,
		"host:port that serves the dashboard; port 0 chooses a free port, empty or 0 disables it. "+
			"An address other than loopback requires --dashboard-cert-file and --dashboard-key-file")
	fs.StringVar(&o.CertFile, "dashboard-cert-file", o.CertFile, "PEM certificate of the dashboard; reloaded when it changes")
	fs.StringVar(&o.KeyFile, "dashboard-key-file", o.KeyFile, "PEM key of the dashboard; reloaded when it changes")
}

// Enabled reports whether the dashboard is served.
func (o *Options) Enabled() bool { return serve.Enabled(o.Address) }

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() []error {
	return serve.ValidateListener("dashboard", o.Address, map[string]string{"cert-file": o.CertFile, "key-file": o.KeyFile})
}
