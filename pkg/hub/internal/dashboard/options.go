package dashboard

import (
	"errors"
	"fmt"
	"net"
	"strconv"

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
func (o *Options) Enabled() bool { return o.Address != "" && o.Address != "0" }

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() []error {
	if !o.Enabled() {
		return nil
	}
	var errs []error
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--dashboard-cert-file and --dashboard-key-file: set both or neither"))
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return append(errs, fmt.Errorf("--dashboard-address must be host:port, such as 127.0.0.1:8090, or 0 to disable it, got %q", o.Address))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		errs = append(errs, fmt.Errorf("--dashboard-address %q must have a port from 0 to 65535, got %q", o.Address, port))
	}
	if !serve.IsLoopback(host) && (o.CertFile == "" || o.KeyFile == "") {
		errs = append(errs, fmt.Errorf("--dashboard-address %q is reachable from other machines: set --dashboard-cert-file and "+
			"--dashboard-key-file, or listen on 127.0.0.1:%s", o.Address, port))
	}
	return errs
}
