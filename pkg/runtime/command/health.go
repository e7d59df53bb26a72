package command

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/runtime/serve"
)

// Health returns the subcommand health. It gets the readiness of a running command from its
// listener, and fails with the listener's response if the command is not ready. It is the health
// check of containers, which have no other program. address is the default of --url.
func Health(address string) *cobra.Command {
	timeout := 3 * time.Second
	return New(Config{
		Use:   "health",
		Short: "Check whether the running command is ready",
		Long: "Gets the readiness of a running command from its listener. The exit code is 0 if it is ready, else 1, and the\n" +
			"failed checks are printed.",
		Sections: []Section{{Title: "Check", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&address, "url", address, "URL of /readyz or /healthz; with https the certificate is not verified")
			fs.DurationVar(&timeout, "timeout", timeout, "maximum time until the response")
		}}},
		Validate: func() []error {
			var errs []error
			if u, err := url.Parse(address); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
				errs = append(errs, fmt.Errorf("--url must be http://HOST:PORT/readyz, or https, got %q", address))
			}
			if timeout <= 0 {
				errs = append(errs, fmt.Errorf("--timeout must be more than 0, got %s", timeout))
			}
			return errs
		},
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return serve.Probe(ctx, address)
		},
	})
}
