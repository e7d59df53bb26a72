// Command work-broker is an MQTT 5 broker that restricts every client to its own topics; see
// package broker.
//
//	work-broker --config=work-broker.yaml
//	work-broker passwd < password.txt
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/pkg/runtime/logging"
	"github.com/workwire/workwire/pkg/runtime/memory"
	"github.com/workwire/workwire/pkg/runtime/tracing/otlp"
)

func main() { os.Exit(command.Main(newCommand(os.Stderr))) }

// options are the values of the flags.
type options struct {
	config  string
	logging logging.Options
	tracing otlp.Options
}

// newCommand returns the command. It logs to logs.
func newCommand(logs io.Writer) *cobra.Command {
	o := &options{logging: logging.NewOptions(), tracing: otlp.NewOptions()}
	cmd := command.New(command.Config{
		Use:   "work-broker --config=FILE",
		Short: "Run an MQTT 5 broker that restricts every client to its own topics",
		Long: "Runs an MQTT 5 broker that restricts every client to its own topics. Sessions and messages survive a restart.\n" +
			"work-broker passwd prints the hash of a password, given or random, for FILE.\n" +
			"work-broker health checks whether the running broker is ready.",
		Sections: []command.Section{
			{Title: "Configuration", Bind: func(fs *pflag.FlagSet) {
				fs.StringVar(&o.config, "config", o.config, "YAML file with listeners, users and limits, see broker/work-broker.yaml; required")
			}},
			{Title: "Traces", Bind: o.tracing.AddFlags},
			{Title: "Logs", Bind: o.logging.AddFlags},
		},
		Validate: o.validate,
		Run:      func(ctx context.Context) error { return o.run(ctx, logs) },
	})
	cmd.AddCommand(newPasswdCommand())
	cmd.AddCommand(command.Health("http://127.0.0.1:9641/readyz")) // httpAddress of the example
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

func (o *options) validate() []error {
	errs := append(o.logging.Validate(), o.tracing.Validate()...)
	if o.config == "" {
		errs = append(errs, errors.New("--config is required: the YAML file of the broker, see broker/work-broker.yaml"))
	}
	return errs
}

// run runs the broker until ctx ends. It logs to logs.
func (o *options) run(ctx context.Context, logs io.Writer) error {
	cfg, err := broker.LoadConfig(o.config)
	if err != nil {
		return err
	}
	cfg.Logger = o.logging.Logger(logs)
	traces, err := otlp.New(otlp.Config{Options: o.tracing, Service: "work-broker", Logger: cfg.Logger})
	if err != nil {
		return err
	}
	cfg.TracerProvider = traces.TracerProvider()
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return traces.Run(ctx) })
	group.Go(func() error { return memory.ReturnAtRest(ctx) })
	group.Go(func() error { return b.Run(ctx) })
	return group.Wait()
}
