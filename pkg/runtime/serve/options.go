package serve

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Options configure the listener by flags. Set the defaults of the flags in the fields before
// [Options.AddFlags].
type Options struct {
	// Address is the host:port to listen on; port 0 chooses a free port. Empty or "0" disables the
	// listener.
	Address string
	// CertFile and KeyFile are the listener's certificate and key in PEM. They are reloaded when
	// they change. Set both, or neither for plain HTTP.
	CertFile, KeyFile string
	// TokenFile holds the bearer token that callers must present. It is reloaded when it changes.
	// Empty means no token.
	TokenFile string
	// Profiling serves /debug/pprof too.
	Profiling bool
}

// AddFlags adds the flags that set o, with the current values of o as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "listen-address", o.Address,
		"host:port that serves /metrics, /healthz and /readyz; port 0 chooses a free port, the value 0 disables the listener. "+
			"An address other than loopback requires --listen-cert-file, --listen-key-file and --listen-token-file")
	fs.StringVar(&o.CertFile, "listen-cert-file", o.CertFile, "PEM certificate of the listener; reloaded when it changes")
	fs.StringVar(&o.KeyFile, "listen-key-file", o.KeyFile, "PEM key of the listener; reloaded when it changes")
	fs.StringVar(&o.TokenFile, "listen-token-file", o.TokenFile,
		"file with the bearer token that callers of the listener must present; reloaded when it changes")
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve profiles at /debug/pprof of the listener")
}

// Enabled reports whether the listener is enabled.
func (o *Options) Enabled() bool { return Enabled(o.Address) }

// Validate returns an error for each invalid flag. It reads no files.
func (o *Options) Validate() []error {
	return ValidateListener("listen", o.Address, map[string]string{"cert-file": o.CertFile, "key-file": o.KeyFile, "token-file": o.TokenFile})
}

// Enabled reports whether an address is one to listen on: it is neither empty nor 0.
func Enabled(address string) bool { return address != "" && address != "0" }

// ValidateListener returns an error for each fault of the flags --PREFIX-address and --PREFIX-FILE, of which there are at least cert-file and
// key-file. Those two belong together, and all are required for an address that other machines can reach. It reads no files.
func ValidateListener(prefix, address string, files map[string]string) []error {
	if !Enabled(address) {
		return nil
	}
	var errs []error
	if (files["cert-file"] == "") != (files["key-file"] == "") {
		errs = append(errs, fmt.Errorf("--%[1]s-cert-file and --%[1]s-key-file: set both or neither", prefix))
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return append(errs, fmt.Errorf("--%s-address must be host:port, such as 127.0.0.1:8080, or 0 to disable the listener, got %q", prefix, address))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		errs = append(errs, fmt.Errorf("--%s-address %q must have a port from 0 to 65535, got %q", prefix, address, port))
	}
	if slices.Contains(slices.Collect(maps.Values(files)), "") && !IsLoopback(host) {
		var flags []string
		for _, file := range slices.Sorted(maps.Keys(files)) {
			flags = append(flags, "--"+prefix+"-"+file)
		}
		last := len(flags) - 1
		errs = append(errs, fmt.Errorf("--%s-address %q is reachable from other machines: set %s and %s, or listen on 127.0.0.1:%s",
			prefix, address, strings.Join(flags[:last], ", "), flags[last], port))
	}
	return errs
}

// IsLoopback reports whether only this machine can reach host. Of host names, only localhost is
// accepted: the result must not depend on a DNS lookup.
func IsLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
