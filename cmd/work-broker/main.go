// Command work-broker is an MQTT 5 broker that restricts every client to its own topics; see
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

// options are the values of the flags.
type options struct {
	config  string
	logging logging.Options
}

// newCommand returns the command. It logs to logs.
func newCommand(logs io.Writer) *cobra.Command {
	o := &options{logging: logging.NewOptions()}
	cmd := command.New(command.Config{
		Use:   "work-broker --config=FILE",
		Short: "Run an MQTT 5 broker that restricts every client to its own topics",
		Long: "Runs an MQTT 5 broker that restricts every client to its own topics. Sessions and messages survive a restart.\n" +
			"work-broker passwd reads a password from standard input and prints its hash for FILE.\n" +
			"work-broker health checks whether the running broker is ready.",
		Sections: []command.Section{
			{Title: "Configuration", Bind: func(fs *pflag.FlagSet) {
				fs.StringVar(&o.config, "config", o.config, "YAML file with listeners, users and limits, see broker/work-broker.yaml; required")
			}},
			{Title: "Logs", Bind: o.logging.AddFlags},
		},
		Validate: o.validate,
		Run:      func(ctx context.Context) error { return o.run(ctx, logs) },
	})
	cmd.AddCommand(&cobra.Command{
		Use: "passwd", Short: "Read a password from standard input and print its hash for the configuration",
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
	errs := o.logging.Validate()
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
		return errors.New("read the password: it has more than one line")
	}
	hash, err := broker.HashPassword(line)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, hash)
	return err
}
