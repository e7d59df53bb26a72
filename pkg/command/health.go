package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/pkg/serve"
)

// Health makes the subcommand health: it asks the listener of a running command
// whether that is ready, and fails with the listener's words when it is not. It
// serves as health check where there is no other program, as in a container.
// address is the URL asked unless --url says otherwise.
func Health(address string) *cobra.Command {
	timeout := 3 * time.Second
	return New(Config{
		Use:   "health",
		Short: "Tell by the exit code whether the command that runs here is ready",
		Long:  "Asks a running command whether it is ready. The exit code is 0 when it is, else 1, with what is not ready.",
		Sections: []Section{{Title: "What to ask", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&address, "url", address, "URL of /readyz or /healthz; with https any certificate is taken")
			fs.DurationVar(&timeout, "timeout", timeout, "time for the answer")
		}}},
		Validate: func() []error {
			var faults []error
			if u, err := url.Parse(address); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
				faults = append(faults, fmt.Errorf("--url %q: want http://HOST:PORT/readyz, or https", address))
			}
			if timeout <= 0 {
				faults = append(faults, errors.New("--timeout: want more than 0"))
			}
			return faults
		},
		Run: func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			return serve.Probe(ctx, address)
		},
	})
}
