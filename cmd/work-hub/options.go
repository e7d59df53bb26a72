package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/command"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/hub/finalizer"
	"github.com/workwire/workwire/pkg/kube"
	"github.com/workwire/workwire/pkg/leader"
	"github.com/workwire/workwire/pkg/logging"
	"github.com/workwire/workwire/pkg/serve"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/version"
	"github.com/workwire/workwire/pkg/wire"
)

type options struct {
	source          string
	transport       string
	transportConfig string
	clientID        string
	workers         int
	controllers     []string
	autoRegister    bool
	autoAccept      bool

	kube    kube.Options
	leader  leader.Options
	serve   serve.Options
	logging logging.Options

	broker config.Config // read by validate
}

func newOptions() *options {
	return &options{
		transport:   "mqtt",
		workers:     finalizer.DefaultWorkers,
		controllers: []string{"*"},
		leader:      hub.NewElection(""),
		serve:       serve.Options{Address: "127.0.0.1:8082"},
		logging:     logging.NewOptions(),
	}
}

// sections binds the flags, in the groups that the help shows.
func (o *options) sections() []command.Section {
	return []command.Section{
		{Title: "The hub", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.source, "source-id", o.source, "id under which the hub owns its works, the same for all replicas and for ever; a-z, 0-9 and -; required")
			o.kube.AddFlags(fs)
			fs.IntVar(&o.workers, "workers", o.workers, "finalizers, and statuses, written at a time, 1 to 1024")
			fs.StringSliceVar(&o.controllers, "controllers", o.controllers, "what the hub does besides publishing, comma-separated: * for all, NAME for one, -NAME to leave one out; the names: "+
				strings.Join(hub.Controllers(), ", "))
		}},
		{Title: "Clusters", Bind: func(fs *pflag.FlagSet) {
			fs.BoolVar(&o.autoRegister, "auto-register", o.autoRegister, "make a ManagedCluster, and its namespace, for each cluster first heard from; then no cluster gets works before its hubAcceptsClient is set")
			fs.BoolVar(&o.autoAccept, "auto-accept", o.autoAccept, "accept the clusters that --auto-register makes: whoever may connect to the broker as a cluster gets its works")
		}},
		{Title: "The broker", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.transport, "transport", o.transport, "how to reach the agents: mqtt")
			fs.StringVar(&o.transportConfig, "transport-config", o.transportConfig, "file with the broker's address, credentials and topics, in YAML; required")
			fs.StringVar(&o.clientID, "client-id", o.clientID, "client id at the broker, unique there but for this hub's replicas, of which one connects; default: <source id>-hub")
		}},
		{Title: "Replicas", Bind: o.leader.AddFlags},
		{Title: "Metrics and health", Bind: o.serve.AddFlags},
		{Title: "Logs", Bind: o.logging.AddFlags},
	}
}

var sourceShape = regexp.MustCompile(`^[a-z0-9-]+$`)

// validate fills in what follows from other flags and reports every fault, by
// flag. It reads the transport configuration.
func (o *options) validate() []error {
	var faults []error
	named := sourceShape.MatchString(o.source)
	switch {
	case o.source == "":
		faults = append(faults, errors.New("--source-id is required: the id that the topics in --transport-config name"))
	case !named:
		faults = append(faults, fmt.Errorf("--source-id: %q can not stand in a topic, want only a-z, 0-9 and -", o.source))
	}
	if o.transport != "mqtt" {
		faults = append(faults, fmt.Errorf("--transport: %q is not supported, only mqtt is", o.transport))
	}
	if o.workers < 1 || o.workers > 1024 {
		faults = append(faults, fmt.Errorf("--workers: %d, want 1 to 1024", o.workers))
	}
	chosen, err := hub.ChooseControllers(o.controllers)
	if err != nil {
		faults = append(faults, fmt.Errorf("--controllers: %w", err))
	}
	if o.autoAccept && !o.autoRegister {
		faults = append(faults, errors.New("--auto-accept accepts what --auto-register makes: set both, or neither"))
	}
	if o.autoRegister && err == nil && !slices.Contains(chosen, hub.ControllerClusters) {
		faults = append(faults, fmt.Errorf("--auto-register needs the controller %s, which --controllers leaves out", hub.ControllerClusters))
	}
	o.controllers = chosen
	faults = append(faults, o.readTransport(named)...)
	faults = append(faults, o.kube.Validate()...)
	if named {
		if o.clientID == "" {
			o.clientID = o.source + "-hub"
		}
		if o.leader.Name == "" {
			o.leader.Name = "work-hub-" + o.source
		}
		faults = append(faults, o.leader.Validate()...)
	}
	faults = append(faults, o.serve.Validate()...)
	return append(faults, o.logging.Validate()...)
}

func (o *options) readTransport(named bool) []error {
	if o.transportConfig == "" {
		return []error{errors.New("--transport-config is required: a file that says where the broker is")}
	}
	broker, err := config.Load(o.transportConfig)
	if err != nil {
		return []error{fmt.Errorf("--transport-config: %w", err)}
	}
	o.broker = broker
	if !named {
		return nil
	}
	if _, err := broker.Topics.ForSource(wire.SourceID(o.source)); err != nil {
		return []error{fmt.Errorf("--transport-config: %s: %w", o.transportConfig, err)}
	}
	return nil
}

// run is the hub until ctx ends; it logs to logs.
func (o *options) run(ctx context.Context, logs io.Writer) error {
	kubeConfig, err := o.kube.RESTConfig("work-hub")
	if err != nil {
		return err
	}
	logger := o.logging.Logger(logs)
	o.logging.SetKlog(logger)
	registry := serve.NewRegistry()
	if err := kube.CountRequests(kubeConfig, registry); err != nil {
		return err
	}
	link, err := mqtt.New(mqtt.Config{Broker: o.broker, ClientID: o.clientID, Logger: logger, Registerer: registry})
	if err != nil {
		return err
	}
	h, err := hub.New(hub.Config{
		REST: kubeConfig, Source: wire.SourceID(o.source), Topics: o.broker.Topics, Transport: link, Election: o.leader,
		Controllers: o.controllers, AutoRegister: o.autoRegister, AutoAccept: o.autoAccept, KeepAlive: o.broker.KeepAlive,
		Workers: o.workers, Registerer: registry, Logger: logger,
	})
	if err != nil {
		return err
	}
	server, err := serve.New(serve.Config{Options: o.serve, Registry: registry, Ready: h.Checks(), Logger: logger})
	if err != nil {
		return err
	}
	logger.Info("starting", "version", version.Version, "source", o.source, "api", kubeConfig.Host,
		"broker", o.broker.BrokerHost, "clientID", o.clientID)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Run(ctx) })
	group.Go(func() error { return h.Run(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}
