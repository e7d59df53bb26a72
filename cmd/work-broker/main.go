// Command work-broker is an MQTT 5 broker that holds every client to its own topics; see
// package broker.
//
//	work-broker --config=work-broker.yaml
//	work-broker passwd < password.txt
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/workwire/workwire/broker"
	"github.com/workwire/workwire/pkg/command"
	"github.com/workwire/workwire/pkg/logging"
)

func main() { os.Exit(command.Main(newCommand(os.Stderr))) }

// options are what the flags say.
type options struct {
	config  string
	logging logging.Options
}

// newCommand makes the command; it logs to logs.
func newCommand(logs io.Writer) *cobra.Command {
	o := &options{logging: logging.NewOptions()}
	cmd := command.New(command.Config{
		Use:   "work-broker --config=FILE",
		Short: "Be an MQTT 5 broker that holds every client to its own topics",
		Long: "An MQTT 5 broker that holds every client to its own topics, and keeps sessions and messages over a restart.\n" +
			"work-broker passwd reads a password from standard input and prints its hash for FILE.\n" +
			"work-broker health tells whether the one that runs here is ready.",
		Sections: []command.Section{
			{Title: "Configuration", Bind: func(fs *pflag.FlagSet) {
				fs.StringVar(&o.config, "config", o.config, "file with listeners, users and limits, in YAML; broker/work-broker.yaml is an example; required")
			}},
			{Title: "Logs", Bind: o.logging.AddFlags},
		},
		Validate: o.validate,
		Run:      func(ctx context.Context) error { return o.run(ctx, logs) },
	})
	cmd.AddCommand(&cobra.Command{
		Use: "passwd", Short: "Read a password from standard input, print its hash for the configuration",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return errors.New("passwd takes no arguments: it reads the password from standard input, where other users cannot see it")
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return passwd(cmd.InOrStdin(), cmd.OutOrStdout()) },
	})
	cmd.AddCommand(command.Health("http://127.0.0.1:9641/readyz")) // httpAddress of the example
	cmd.CompletionOptions.DisableDefaultCmd = true
	return cmd
}

func (o *options) validate() []error {
	var faults []error
	if o.config == "" {
		faults = append(faults, errors.New("--config is required; broker/work-broker.yaml is an example to begin with"))
	}
	return append(faults, o.logging.Validate()...)
}

// run is the broker until ctx ends; it logs to logs.
func (o *options) run(ctx context.Context, logs io.Writer) error {
	cfg, err := broker.LoadConfig(o.config)
	if err != nil {
		return err
	}
	cfg.Logger = o.logging.Logger(logs)
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// passwd reads one line and prints its hash.
func passwd(stdin io.Reader, stdout io.Writer) error {
	data, err := io.ReadAll(io.LimitReader(stdin, 4096))
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	line, rest, _ := strings.Cut(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if rest != "" {
		return errors.New("the password has more than one line")
	}
	hash, err := broker.HashPassword(line)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, hash)
	return err
}
