package serve

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"
)

// Options say where to listen and who may read. Set defaults in the fields
// before [Options.AddFlags].
type Options struct {
	// Address to listen on, host:port; port 0 takes a free one. Empty or "0"
	// switches the listener off.
	Address string
	// CertFile and KeyFile are the listener's certificate and key, PEM. They are
	// read again when they change. Both or neither are set; without them the
	// listener speaks plain HTTP.
	CertFile, KeyFile string
	// TokenFile holds the bearer token that callers must present. It is read
	// again when it changes. Empty asks for none.
	TokenFile string
	// Profiling serves /debug/pprof as well.
	Profiling bool
}

// AddFlags adds the flags that set o, with o's present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "listen-address", o.Address,
		"host:port that serves /metrics, /healthz and /readyz; port 0 takes a free one, 0 switches it off. "+
			"Beyond loopback the certificate, key and token files below are required")
	fs.StringVar(&o.CertFile, "listen-cert-file", o.CertFile, "PEM certificate of the listener; read again when it changes")
	fs.StringVar(&o.KeyFile, "listen-key-file", o.KeyFile, "PEM key of the listener; read again when it changes")
	fs.StringVar(&o.TokenFile, "listen-token-file", o.TokenFile,
		"file with the bearer token that callers of the listener must present; read again when it changes")
	fs.BoolVar(&o.Profiling, "profiling", o.Profiling, "serve profiles under /debug/pprof of the listener")
}

// Enabled reports whether there is an address to listen on.
func (o *Options) Enabled() bool { return o.Address != "" && o.Address != "0" }

// Validate reports every fault of o, each by its flag and with what to do. It
// reads no file.
func (o *Options) Validate() []error {
	if !o.Enabled() {
		return nil
	}
	var faults []error
	if (o.CertFile == "") != (o.KeyFile == "") {
		faults = append(faults, errors.New("--listen-cert-file and --listen-key-file: set both or neither"))
	}
	host, port, err := net.SplitHostPort(o.Address)
	if err != nil {
		return append(faults, fmt.Errorf("--listen-address %q: want host:port, such as 127.0.0.1:8080, or 0 to switch it off", o.Address))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		faults = append(faults, fmt.Errorf("--listen-address %q: want a port from 0 to 65535, got %q", o.Address, port))
	}
	if !loopback(host) && (o.CertFile == "" || o.KeyFile == "" || o.TokenFile == "") {
		faults = append(faults, fmt.Errorf("--listen-address %q is reachable from other machines: set --listen-cert-file, "+
			"--listen-key-file and --listen-token-file, or listen on 127.0.0.1:%s", o.Address, port))
	}
	return faults
}

// loopback reports whether only this machine can reach host. Names are not
// resolved, since what they mean may change: localhost is the one that counts.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
