package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/runtime/logging"
	"github.com/workwire/workwire/pkg/runtime/memory"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/tracing/otlp"
	"github.com/workwire/workwire/pkg/runtime/version"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/security/sourcekeys"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

type options struct {
	source           string
	transport        string
	transportConfig  string
	clientID         string
	keys             sourcekeys.Flags
	workers          int
	controllers      []string
	clusterSelector  string
	autoRegister     bool
	autoAccept       bool
	unreachableGrace time.Duration
	clusterProfiles  string
	requireBindings  bool
	pendingDelay     time.Duration
	readiness        bool

	kube      kube.Options
	leader    leader.Options
	serve     serve.Options
	dashboard hub.DashboardOptions
	logging   logging.Options
	tracing   otlp.Options
	audit     string

	groupLabel string
	maxGroups  int

	broker   config.Config   // read by validate
	selector labels.Selector // parsed by validate; nil: all clusters

	joins joinOptions
}

func newOptions() *options {
	return &options{
		transport:        "mqtt",
		workers:          hub.DefaultWorkers,
		controllers:      []string{"*"},
		unreachableGrace: hub.DefaultUnreachableGrace,
		keys:             sourcekeys.Flags{SignatureMaxAge: signing.DefaultMaxAge},
		requireBindings:  true,
		readiness:        true,
		pendingDelay:     hub.DefaultPendingDelay,
		leader:           hub.NewElection(""),
		serve:            serve.Options{Address: "127.0.0.1:8082"},
		logging:          logging.NewOptions(),
		tracing:          otlp.NewOptions(),
		maxGroups:        hub.DefaultMaxClusterGroups,
		joins:            newJoinOptions(),
	}
}

// sections binds the flags in the groups of the help.
func (o *options) sections() []command.Section {
	return []command.Section{
		{Title: "The hub", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.source, "source-id", o.source, "id of this hub as a source of works, the same for all replicas and forever; a-z, 0-9 and - (required)")
			o.kube.AddFlags(fs)
			fs.IntVar(&o.workers, "workers", o.workers, "number of finalizers, of statuses, and of works of replica sets, that are written at a time, 1 to 1024; fewer while writes wait for each other")
			fs.DurationVar(&o.pendingDelay, "pending-delay", o.pendingDelay, "how long a work may go without an answer of its cluster before its condition Delivered says why, at least 1ms; an answer within it costs no request more")
			fs.BoolVar(&o.readiness, "report-readiness", o.readiness, "have agents report whether the objects of a work are ready, unless its annotation workwire.dev/report-readiness is false; "+
				"false: only where that is true, and other works are applied with their readiness not watched")
			fs.StringSliceVar(&o.controllers, "controllers", o.controllers, "controllers to run, comma-separated: * enables all, NAME enables one, -NAME disables one; names: "+
				strings.Join(hub.Controllers(), ", "))
		}},
		{Title: "Clusters", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.clusterSelector, "cluster-selector", o.clusterSelector, "label selector of the ManagedClusters that this hub serves, such as shard=a or shard notin (a,b), where several hubs share "+
				"the API and --source-id: each has a Lease and a client id of its own, and a cluster moves between them by its labels, see docs/hub-replicas.md (default none, and the hub serves all clusters)")
			fs.BoolVar(&o.autoRegister, "auto-register", o.autoRegister, "create a ManagedCluster and its namespace for each cluster that is heard from for the first time; a cluster then gets works only if its hubAcceptsClient is true")
			fs.BoolVar(&o.autoAccept, "auto-accept", o.autoAccept, "accept the clusters that --auto-register creates: every client that the broker accepts as a cluster gets its works")
			fs.DurationVar(&o.unreachableGrace, "unreachable-grace", o.unreachableGrace, "how long a cluster is absent before it gets the taint "+
				"cluster.open-cluster-management.io/unreachable, at least 1s; placements then select another cluster if they want a number of clusters")
			fs.StringVar(&o.clusterProfiles, "cluster-profiles", o.clusterProfiles, "namespace in which the hub keeps a ClusterProfile (multicluster.x-k8s.io/v1alpha1) for each accepted cluster, see docs/clusters.md; "+
				"its definition is in deploy/crds/optional (default none)")
			fs.BoolVar(&o.requireBindings, "require-cluster-set-bindings", o.requireBindings, "placements and replica sets reach only clusters of the ManagedClusterSets that a ManagedClusterSetBinding binds to their namespace; "+
				"false: whoever may write them in any namespace reaches all clusters")
		}},
		{Title: "The broker", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.transport, "transport", o.transport, "transport to the agents: mqtt")
			fs.StringVar(&o.transportConfig, "transport-config", o.transportConfig, "YAML file with the broker's address, credentials and topics (required)")
			fs.StringVar(&o.keys.SigningKey, "signing-key", o.keys.SigningKey, "PEM file with the Ed25519 key that signs every event, see docs/signing.md; workctl keys new makes one (default none, and nothing is signed)")
			fs.StringSliceVar(&o.keys.TrustedAgents, "trusted-agents", o.keys.TrustedAgents, "YAML files with the keys that the agents of all clusters sign their statuses with, comma-separated, see docs/signing.md: "+
				"no other status counts, and no cluster without a key is registered (default none, and every status that the broker delivers counts)")
			fs.DurationVar(&o.keys.SignatureMaxAge, "signature-max-age", o.keys.SignatureMaxAge,
				"how old the signature of a status may be, and how far ahead of the hub's clock; at least 1m, 0 for no limit; with --trusted-agents only")
			fs.StringVar(&o.keys.SealKeys, "seal-keys", o.keys.SealKeys, "directory with a file CLUSTER.pub for each cluster that specs are sealed to, so that the broker cannot read them, see docs/sealing.md; "+
				"needs --signing-key (default none, and nothing is sealed)")
			fs.StringSliceVar(&o.keys.RequireSealing, "require-sealing", o.keys.RequireSealing, "clusters that get no spec in clear, also without a file in --seal-keys, comma-separated; * for all (default none)")
			fs.StringVar(&o.clientID, "client-id", o.clientID, "MQTT client id, the same for this hub's replicas and otherwise unique at the broker (default <source id>-hub, with --cluster-selector and a hash of it: <source id>-hub-<hash>)")
		}},
		{Title: "Joining", Bind: o.joins.addFlags},
		{Title: "Replicas", Bind: o.leader.AddFlags},
		{Title: "Metrics and health", Bind: func(fs *pflag.FlagSet) {
			o.serve.AddFlags(fs)
			fs.StringVar(&o.groupLabel, "metrics-cluster-group-label", o.groupLabel,
				"label of ManagedClusters, such as region, by whose value the metric workwire_hub_works_by_state counts works (default none, and all are counted together)")
			fs.IntVar(&o.maxGroups, "metrics-cluster-groups", o.maxGroups, "number of values of that label that are told apart, 1 to 1000, the first ones of the alphabet; the rest is \"other\"")
		}},
		{Title: "Dashboard", Bind: o.dashboard.AddFlags},
		{Title: "Traces", Bind: o.tracing.AddFlags},
		{Title: "Logs", Bind: func(fs *pflag.FlagSet) {
			o.logging.AddFlags(fs)
			audit.AddFlag(fs, &o.audit)
		}},
	}
}

var sourceShape = regexp.MustCompile(`^[a-z0-9-]+$`)

// validate sets the defaults that depend on other flags and reports every fault by flag. It reads
// the transport configuration.
func (o *options) validate() []error {
	var errs []error
	valid := sourceShape.MatchString(o.source)
	switch {
	case o.source == "":
		errs = append(errs, errors.New("--source-id is required: the id in the topics of --transport-config"))
	case !valid:
		errs = append(errs, fmt.Errorf("--source-id must have only a-z, 0-9 and -, got %q", o.source))
	}
	if o.clusterSelector != "" {
		var err error
		if o.selector, err = labels.Parse(o.clusterSelector); err != nil {
			errs = append(errs, fmt.Errorf("--cluster-selector must be a label selector, such as shard=a: %w", err))
		}
	}
	for _, err := range o.hubConfig().Validate() {
		errs = append(errs, errors.New(flagOf.Replace(err.Error())))
	}
	if o.transport != "mqtt" {
		errs = append(errs, fmt.Errorf("--transport must be mqtt, got %q", o.transport))
	}
	if o.workers < 1 || o.workers > 1024 {
		errs = append(errs, fmt.Errorf("--workers must be 1 to 1024, got %d", o.workers))
	}
	if o.unreachableGrace < time.Second {
		errs = append(errs, fmt.Errorf("--unreachable-grace must be at least 1s, got %s", o.unreachableGrace))
	}
	if o.pendingDelay < time.Millisecond {
		errs = append(errs, fmt.Errorf("--pending-delay must be at least 1ms, got %s", o.pendingDelay))
	}
	errs = append(errs, o.keys.Validate()...)
	errs = append(errs, o.readTransport(valid)...)
	errs = append(errs, o.joins.validate(o.broker, o.transportConfig)...)
	errs = append(errs, o.kube.Validate()...)
	if valid {
		if o.clientID == "" {
			o.clientID = o.source + "-hub" + o.selectorHash()
		}
		if o.leader.Name == "" {
			o.leader.Name = hub.SharedLease(wire.SourceID(o.source)) + o.selectorHash()
		}
		errs = append(errs, o.leader.Validate()...)
	}
	errs = append(errs, o.serve.Validate()...)
	errs = append(errs, o.dashboard.Validate()...)
	errs = append(errs, o.tracing.Validate()...)
	errs = append(errs, o.validateGroups()...)
	return append(errs, o.logging.Validate()...)
}

// flagOf puts the flags that set the fields of a hub.Config in place of these.
var flagOf = strings.NewReplacer(
	"AutoAccept", "--auto-accept", "ClusterProfiles", "--cluster-profiles", "AutoRegister", "--auto-register", "ClusterSelector", "--cluster-selector", "Controllers", "--controllers",
	"Election.Disabled", "--disable-leader-election", "Election.Name", "--leader-election-name")

// hubConfig returns what the flags say.
func (o *options) hubConfig() *hub.Config {
	return &hub.Config{
		Source: wire.SourceID(o.source), Topics: o.broker.Topics, Election: o.leader, ClusterSelector: o.selector, Controllers: o.controllers,
		AutoRegister: o.autoRegister, AutoAccept: o.autoAccept, KeepAlive: o.broker.KeepAlive, UnreachableGrace: o.unreachableGrace,
		PendingDelay: o.pendingDelay, WithoutClusterSets: !o.requireBindings, WithoutReadiness: !o.readiness, Workers: o.workers,
		ClusterProfiles: o.clusterProfiles, ClusterGroupLabel: o.groupLabel, MaxClusterGroups: o.maxGroups,
	}
}

// selectorHash returns what distinguishes the hubs of one source id: a hash of --cluster-selector, empty
// without one.
func (o *options) selectorHash() string {
	if o.selector == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.ReplaceAll(o.selector.String(), "==", "=")))
	return "-" + hex.EncodeToString(sum[:4])
}

func (o *options) validateGroups() []error {
	var errs []error
	if o.groupLabel != "" && len(validation.IsQualifiedName(o.groupLabel)) > 0 {
		errs = append(errs, fmt.Errorf("--metrics-cluster-group-label must be the key of a label, such as region or example.com/region, got %q", o.groupLabel))
	}
	if o.maxGroups < 1 || o.maxGroups > 1000 {
		errs = append(errs, fmt.Errorf("--metrics-cluster-groups must be 1 to 1000, got %d", o.maxGroups))
	}
	return errs
}

func (o *options) readTransport(valid bool) []error {
	if o.transportConfig == "" {
		return []error{errors.New("--transport-config is required: a file with the broker's address, credentials and topics")}
	}
	broker, err := config.Load(o.transportConfig)
	if err != nil {
		return []error{fmt.Errorf("--transport-config: %w", err)}
	}
	o.broker = broker
	if !valid {
		return nil
	}
	if _, err := broker.Topics.ForSource(wire.SourceID(o.source)); err != nil {
		return []error{fmt.Errorf("--transport-config: %s: %w", o.transportConfig, err)}
	}
	return nil
}

// run runs the hub until ctx ends. It logs to logs.
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
	transport, err := mqtt.New(mqtt.Config{Broker: o.broker, ClientID: o.clientID, Logger: logger, Registerer: registry})
	if err != nil {
		return err
	}
	records, err := audit.Open(audit.Config{Path: o.audit, Program: "work-hub", Registerer: registry, Logger: logger})
	if err != nil {
		return err
	}
	traces, err := otlp.New(otlp.Config{Options: o.tracing, Service: "work-hub", Registerer: registry, Logger: logger})
	if err != nil {
		return err
	}
	config := o.hubConfig()
	config.REST, config.Transport, config.Audit, config.TracerProvider = kubeConfig, transport, records, traces.TracerProvider()
	config.Registerer, config.Logger = registry, logger
	keys, err := o.keys.Open(registry, logger)
	if err != nil {
		return err
	}
	config.Sign, config.Seal, config.TrustedAgents, config.SignatureMaxAge = keys.Sign, keys.Seal, keys.TrustedAgents, cmp.Or(keys.SignatureMaxAge, -1)
	if config.Joining, err = o.joining(logger); err != nil {
		return err
	}
	h, err := hub.New(*config)
	if err != nil {
		return err
	}
	pages, err := h.Dashboard(o.dashboard)
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
	group.Go(func() error { records.Run(ctx); return nil })
	group.Go(func() error { return pages.Run(ctx) })
	group.Go(func() error { return traces.Run(ctx) })
	group.Go(func() error { return memory.ReturnAtRest(ctx) })
	group.Go(func() error { return h.Run(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	logger.Info("stopped")
	return nil
}
