// Command gitops is a source of ManifestWorks that follows a git repository: each cluster has a folder,
// and each file in it is a work. Nothing is deleted because something is missing. See README.md.
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
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// options are the flags.
type options struct {
	transport, sourceID, state           string
	repository, branch, folder, password string
	interval                             time.Duration
	maxDeletions                         int
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "gitops:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o, slog.Default())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gitops:", err)
		os.Exit(1)
	}
}

// parse returns the options in args, or what is wrong with them.
func parse(args []string, help io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("gitops", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.StringVar(&o.transport, "transport-config", "", "path of the transport configuration file; required")
	flags.StringVar(&o.sourceID, "source-id", "", "id of this source, the one that the topics name; required")
	flags.StringVar(&o.state, "state", "gitops.db", "path of the file that keeps the works")
	flags.StringVar(&o.repository, "repository", "", "URL of the repository, https://, ssh:// or a path; required")
	flags.StringVar(&o.branch, "branch", "main", "branch to follow")
	flags.StringVar(&o.folder, "folder", "clusters", "folder in the repository with a folder for each cluster")
	flags.StringVar(&o.password, "password-file", "", "path of a file with a password or token for https (default: none)")
	flags.DurationVar(&o.interval, "interval", 30*time.Second, "time between two looks at the repository")
	flags.IntVar(&o.maxDeletions, "max-deletions", 10, "works that may be deleted at once; if there are more, nothing is deleted")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if o.transport == "" || o.sourceID == "" || o.repository == "" {
		errs = append(errs, errors.New("--transport-config, --source-id and --repository are required"))
	}
	if o.interval <= 0 || o.maxDeletions < 0 {
		errs = append(errs, errors.New("--interval must be above 0, and --max-deletions at least 0"))
	}
	o.folder = strings.Trim(o.folder, "/")
	return o, errors.Join(errs...)
}

// run follows the repository until ctx ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	broker, err := config.Load(o.transport)
	if err != nil {
		return err
	}
	connection, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: o.sourceID + "-gitops", Logger: log})
	if err != nil {
		return err
	}
	client, err := source.New(source.Config{
		SourceID: wire.SourceID(o.sourceID), Topics: broker.Topics, Transport: connection, StateFile: o.state, Logger: log,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return client.Run(ctx) })
	group.Go(func() error { return follow(ctx, client, o, log) })
	return group.Wait()
}

// follow looks at the repository again and again, and makes the works as the newest commit that could
// be read says.
func follow(ctx context.Context, client *source.Client, o options, log *slog.Logger) error {
	timer := time.NewTicker(o.interval)
	defer timer.Stop()
	newest, kept := commit{}, ""
	for {
		next, err := read(ctx, o, newest)
		if err != nil && ctx.Err() == nil {
			log.Error("repository cannot be read, works stay as they are", "err", err)
		}
		if err == nil {
			newest = next
			orphans, err := reconcile(ctx, client, o, newest.files)
			if err != nil && ctx.Err() == nil {
				log.Error("reconcile failed, retrying", "commit", newest.id, "err", err)
			}
			if list := strings.Join(orphans, " "); list != kept {
				kept = list
				log.Warn("works without a file stay, name them in a file .delete to delete them", "commit", newest.id, "works", list)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}
