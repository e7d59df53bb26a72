// Command configmaps is a controller that keeps a ConfigMap on every cluster whose labels match a
// selector. See README.md.
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
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/workwire/workwire/pkg/source"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

// options are the flags.
type options struct {
	transport, sourceID, state    string
	clusters, selector, configMap string
	interval                      time.Duration
	maxDeletions                  int
}

func main() {
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "configmaps:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o, slog.Default())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "configmaps:", err)
		os.Exit(1)
	}
}

// parse returns the options in args, or what is wrong with them.
func parse(args []string, help io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("configmaps", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.StringVar(&o.transport, "transport-config", "", "path of the transport configuration file; required")
	flags.StringVar(&o.sourceID, "source-id", "", "id of this source, the one that the topics name; required")
	flags.StringVar(&o.state, "state", "configmaps.db", "path of the file that keeps the works")
	flags.StringVar(&o.clusters, "clusters", "clusters.yaml", "path of the file with the clusters and their labels; read again when it is time")
	flags.StringVar(&o.selector, "selector", "", "labels of the clusters that get the ConfigMap, such as stage=prod (default: all clusters of the file)")
	flags.StringVar(&o.configMap, "config-map", "configmap.yaml", "path of the ConfigMap in YAML; read again when it is time")
	flags.DurationVar(&o.interval, "interval", 5*time.Second, "time between two looks at the files")
	flags.IntVar(&o.maxDeletions, "max-deletions", 10, "clusters that may lose the ConfigMap at once; if there are more, nothing is deleted")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var errs []error
	if o.transport == "" || o.sourceID == "" {
		errs = append(errs, errors.New("--transport-config and --source-id are required"))
	}
	if _, err := labels.Parse(o.selector); err != nil {
		errs = append(errs, fmt.Errorf("--selector: %w", err))
	}
	if o.interval <= 0 || o.maxDeletions < 0 {
		errs = append(errs, errors.New("--interval must be above 0, and --max-deletions at least 0"))
	}
	return o, errors.Join(errs...)
}

// run keeps the ConfigMaps until ctx ends.
func run(ctx context.Context, o options, log *slog.Logger) error {
	broker, err := config.Load(o.transport)
	if err != nil {
		return err
	}
	connection, err := mqtt.New(mqtt.Config{Broker: broker, ClientID: o.sourceID + "-configmaps", Logger: log})
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
	group.Go(func() error {
		timer := time.NewTicker(o.interval)
		defer timer.Stop()
		for {
			if err := reconcile(ctx, client, o); err != nil && ctx.Err() == nil {
				log.Error("reconcile failed, retrying", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		}
	})
	return group.Wait()
}
