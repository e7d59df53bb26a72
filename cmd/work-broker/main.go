// Command work-broker is an MQTT 5 broker that holds every client to its own topics; see
// package broker.
//
//	work-broker --config=work-broker.yaml
//	work-broker passwd < password.txt
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/workwire/workwire/broker"
)

const usage = `work-broker is an MQTT 5 broker that holds every client to its own topics.

Usage:
  work-broker --config=FILE   serve until SIGINT or SIGTERM; broker/work-broker.yaml shows FILE
  work-broker passwd          read a password from standard input, print its hash for FILE

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "work-broker:", err)
		os.Exit(1)
	}
}

// options are what the flags say.
type options struct {
	config    string
	logFormat string
	logLevel  slog.Level
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "passwd" {
		return passwd(args[1:], stdin, stdout)
	}
	opts, err := parse(args, stderr)
	if err != nil {
		return err
	}
	cfg, err := broker.LoadConfig(opts.config)
	if err != nil {
		return err
	}
	cfg.Logger = opts.logger(stderr)
	b, err := broker.New(cfg)
	if err != nil {
		return err
	}
	return b.Run(ctx)
}

// parse reads the flags and reports every fault at once.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("work-broker", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, usage)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.config, "config", "", "`file` with the configuration (YAML)")
	fs.StringVar(&o.logFormat, "log-format", "text", "text or json")
	fs.TextVar(&o.logLevel, "log-level", slog.LevelInfo, "debug, info, warn or error")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q; the only subcommand is passwd", fs.Arg(0)))
	}
	if o.config == "" {
		errs = append(errs, errors.New("--config is missing; broker/work-broker.yaml is an example to begin with"))
	}
	if o.logFormat != "text" && o.logFormat != "json" {
		errs = append(errs, fmt.Errorf("--log-format %q is neither text nor json", o.logFormat))
	}
	return o, errors.Join(errs...)
}

func (o options) logger(w io.Writer) *slog.Logger {
	handlerOptions := &slog.HandlerOptions{Level: o.logLevel}
	if o.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, handlerOptions))
	}
	return slog.New(slog.NewTextHandler(w, handlerOptions))
}

// passwd reads one line and prints its hash.
func passwd(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) > 0 {
		return errors.New("passwd takes no arguments: it reads the password from standard input, where other users cannot see it")
	}
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
