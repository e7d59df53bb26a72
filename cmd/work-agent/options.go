package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/workwire/workwire/pkg/agent"
	"github.com/workwire/workwire/pkg/agent/membership"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/command"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/leader"
	"github.com/workwire/workwire/pkg/runtime/logging"
	"github.com/workwire/workwire/pkg/runtime/memory"
	"github.com/workwire/workwire/pkg/runtime/serve"
	"github.com/workwire/workwire/pkg/runtime/tracing/otlp"
	"github.com/workwire/workwire/pkg/runtime/version"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/transport/config"
	"github.com/workwire/workwire/pkg/transport/mqtt"
	"github.com/workwire/workwire/pkg/wire"
)

type options struct {
	cluster         string
	agentID         string
	takesOver       string
	transport       string
	transportConfig string
	joinSecret      string
	clientID        string
	codecs          []string
	trustedKeys     string
	signingKey      string
	signatureMaxAge time.Duration
	unsealKeys      []string
	requireSealed   []string
	policy          string
	stateDir        string
	workers         int
	syncInterval    time.Duration
	evictionGrace   time.Duration
	link            link
	digestInterval  time.Duration
	maxUplink       resource.QuantityValue
	maxSourceSpecs  resource.QuantityValue
	maxWatch        int
	maxRawLength    int
	readiness       bool
	features        features

	kube    kube.Options
	leader  leader.Options
	serve   serve.Options
	logging logging.Options
	tracing otlp.Options
	audit   string

	digestsChosen func() bool // whether --digest-interval is set

	broker      config.Config // read by validate
	hubIdentity string        // of broker
}

func newOptions() *options {
	return &options{
		transport: "mqtt",
		codecs:    []string{"manifestbundle"},
		workers:   agent.DefaultWorkers,

		signatureMaxAge: signing.DefaultMaxAge,
		syncInterval:    agent.DefaultSyncInterval,
		evictionGrace:   agent.DefaultEvictionGrace,
		link:            normalLink,
		digestInterval:  agent.DefaultDigestInterval,
		maxSourceSpecs:  resource.QuantityValue{Quantity: *resource.NewQuantity(64<<20, resource.BinarySI)},
		maxWatch:        agent.DefaultMaxFeedbackWatch,
		maxRawLength:    agent.DefaultMaxJSONRawLength,
		readiness:       true,
		features:        newFeatures(),
		leader:          leader.NewOptions(""),
		serve:           serve.Options{Address: "127.0.0.1:8081"},
		logging:         logging.NewOptions(),
		tracing:         otlp.NewOptions(),
	}
}

// sections binds the flags in the groups that the help shows.
func (o *options) sections() []command.Section {
	return []command.Section{
		{Title: "The cluster", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.cluster, "cluster-name", o.cluster, "name of the cluster, which is the namespace of its works on the hub; a-z, 0-9 and -; required")
			fs.StringVar(&o.takesOver, "take-over-cluster", o.takesOver, "name under which this cluster was served before, whose works become those of --cluster-name: "+
				"the agent refuses to start if another name serves the cluster; default: none")
			fs.StringVar(&o.agentID, "agent-id", o.agentID, "id that marks the AppliedManifestWorks of this agent; default: a hash of the broker's address")
			o.kube.AddFlags(fs)
		}},
		{Title: "The broker", Bind: func(fs *pflag.FlagSet) {
			fs.StringVar(&o.transport, "transport", o.transport, "transport to the sources; only mqtt is supported")
			fs.StringVar(&o.transportConfig, "transport-config", o.transportConfig, "YAML file with the broker's address, credentials and topics; required unless --join-secret is set")
			fs.StringVar(&o.joinSecret, "join-secret", o.joinSecret, "NAMESPACE/NAME of the Secret of the cluster with a token of workctl token create, in place of --transport-config: "+
				"the agent joins with it, keeps its certificate there and renews it, see docs/join.md; default: none")
			fs.StringVar(&o.clientID, "client-id", o.clientID, "MQTT client id, unique at the broker; default: <cluster name>-agent")
			fs.Var(&o.link, "link", "price of the connection to the broker: normal, or metered, where keep-alives are sent every 4m unless the transport configuration has keepAlive, "+
				"and digests every 12m unless --digest-interval is set, so that an idle day is about 80 KB, and a dead connection is noticed later, see docs/agent.md")
			fs.DurationVar(&o.digestInterval, "digest-interval", o.digestInterval,
				"time between the digests of all works that sources compare with their own, to find lost messages; at least 1s, 0 for never")
			o.digestsChosen = func() bool { return fs.Changed("digest-interval") }
			fs.Var(&o.maxUplink, "max-uplink", "bytes of statuses to send in a minute, on average, such as 64Ki: while that is exceeded, statuses in which only feedback values "+
				"have changed wait, and the newest one is sent; others never wait, but count; 0 for no limit")
			fs.StringVar(&o.trustedKeys, "trusted-keys", o.trustedKeys, "YAML file with the keys that sources sign their events with, see docs/signing.md: "+
				"nothing is applied or deleted that is not signed; default: none, and every event that the broker delivers counts")
			fs.DurationVar(&o.signatureMaxAge, "signature-max-age", o.signatureMaxAge,
				"how old a signature may be, and how far ahead of the agent's clock; at least 1m, 0 for no limit; with --trusted-keys only")
			fs.StringVar(&o.signingKey, "signing-key", o.signingKey, "PEM file with the Ed25519 key that signs every status and question, for sources with --trusted-agents, see docs/signing.md; "+
				"workctl keys new makes one; default: none, and nothing is signed")
			fs.StringSliceVar(&o.unsealKeys, "unseal-key", o.unsealKeys, "PEM files with the keys that open specs sealed to this cluster, comma-separated, the one in use first, "+
				"see docs/sealing.md; workctl keys new --type=seal makes one; default: none, and sealed specs are refused")
			fs.StringSliceVar(&o.requireSealed, "require-sealed", o.requireSealed, "ids of sources whose specs and dry runs are refused unless they are sealed, comma-separated; * for all; "+
				"needs --unseal-key; default: none, and those in clear are taken, too")
			fs.StringSliceVar(&o.codecs, "cloudevents-client-codecs", o.codecs, "event format; only manifestbundle is supported")
		}},
		{Title: "Works", Bind: o.addWorkFlags},
		{Title: "Feedback", Bind: func(fs *pflag.FlagSet) {
			fs.BoolVar(&o.readiness, "report-readiness", o.readiness, "report whether the objects of a work are ready where its source asks for it, as this project's hub does; false: never")
			fs.DurationVar(&o.syncInterval, "status-sync-interval", o.syncInterval, "time between reads of objects that are not watched, because they are ReadOnly or a watch is forbidden; at least 1s")
			fs.IntVar(&o.maxWatch, "max-feedback-watch", o.maxWatch, "maximum number of ReadOnly objects with feedbackScrapeType Watch that are watched; others are polled; 0 for none")
			fs.IntVar(&o.maxRawLength, "max-json-raw-length", o.maxRawLength, "maximum size of one feedback value of type JsonRaw, in bytes, 1 to 1024; requires the feature gate RawFeedbackJsonString")
		}},
		{Title: "Feature gates", Bind: func(fs *pflag.FlagSet) {
			fs.Var(o.features, "feature-gates", "comma-separated feature gates, as NAME=true or NAME=false; default: all false. The gates:\n"+
				"RawFeedbackJsonString     report feedback values of any JSON type as JsonRaw\n"+
				"ExecutorValidatingCaches  evaluate the permissions of executors in memory; for clusters that authorize by RBAC only")
		}},
		{Title: "Replicas", Bind: o.leader.AddFlags},
		{Title: "Metrics and health", Bind: o.serve.AddFlags},
		{Title: "Traces", Bind: o.tracing.AddFlags},
		{Title: "Logs", Bind: func(fs *pflag.FlagSet) {
			o.logging.AddFlags(fs)
			audit.AddFlag(fs, &o.audit)
		}},
	}
}

// addWorkFlags binds the flags about works.
func (o *options) addWorkFlags(fs *pflag.FlagSet) {
	fs.IntVar(&o.workers, "workers", o.workers, "number of works reconciled at a time, at least 1")
	fs.StringVar(&o.stateDir, "state-dir", o.stateDir, "directory that keeps works and unsent statuses over a restart; default: none, and sources are asked again")
	fs.Var(&o.maxSourceSpecs, "max-source-specs", "bytes of specs to hold of one source, such as 64Mi: a spec beyond that is refused, and asked for again once there is room; "+
		"what is held stays in force; 0 for no limit")
	fs.StringVar(&o.policy, "policy", o.policy, "YAML file in which the owner of the cluster says what works may do, whatever sources send, see docs/owner-policy.md: "+
		"executors, resources, namespaces, sealed specs; read again when it changes; default: none, and the agent's rights decide")
	fs.DurationVar(&o.evictionGrace, "appliedmanifestwork-eviction-grace-period", o.evictionGrace,
		"time that an AppliedManifestWork of this agent and its objects outlive their work; 876000h (100 years) or more: forever")
}

// minUplink is the least value of --max-uplink, in bytes a minute: about one status.
const minUplink = 1024

// minSourceSpecs is the least value of --max-source-specs, in bytes: one work of the largest size.
const minSourceSpecs = 1 << 20

// validate returns an error for each invalid flag.
func (o *options) validate() []error {
	var errs []error
	if o.cluster == "" {
		errs = append(errs, errors.New("--cluster-name is required; set it to the name of the cluster's namespace on the hub"))
	}
	if o.transport != "mqtt" {
		errs = append(errs, fmt.Errorf("--transport must be mqtt, got %q", o.transport))
	}
	if !slices.Equal(o.codecs, []string{"manifestbundle"}) {
		errs = append(errs, fmt.Errorf("--cloudevents-client-codecs must be manifestbundle, got %v", o.codecs))
	}
	if o.workers < 1 {
		errs = append(errs, fmt.Errorf("--workers must be at least 1, got %d", o.workers))
	}
	if o.syncInterval < time.Second {
		errs = append(errs, fmt.Errorf("--status-sync-interval must be at least 1s, got %v", o.syncInterval))
	}
	if o.evictionGrace <= 0 {
		errs = append(errs, fmt.Errorf("--appliedmanifestwork-eviction-grace-period must be more than 0, got %v; 876000h switches eviction off", o.evictionGrace))
	}
	if o.digestInterval != 0 && o.digestInterval < time.Second {
		errs = append(errs, fmt.Errorf("--digest-interval must be at least 1s, or 0 for never, got %v", o.digestInterval))
	}
	if n := o.maxUplink.Value(); n != 0 && (n < minUplink || n > math.MaxInt32) {
		errs = append(errs, fmt.Errorf("--max-uplink must be %d to %d bytes a minute, or 0 for no limit, got %s", minUplink, math.MaxInt32, &o.maxUplink.Quantity))
	}
	if n := o.maxSourceSpecs.Value(); n != 0 && n < minSourceSpecs {
		errs = append(errs, fmt.Errorf("--max-source-specs must be at least %d bytes, or 0 for no limit, got %s", minSourceSpecs, &o.maxSourceSpecs.Quantity))
	}
	if o.signatureMaxAge != 0 && o.signatureMaxAge < time.Minute {
		errs = append(errs, fmt.Errorf("--signature-max-age must be at least 1m, or 0 for no limit, got %v", o.signatureMaxAge))
	}
	if len(o.requireSealed) > 0 && len(o.unsealKeys) == 0 {
		errs = append(errs, errors.New("--require-sealed needs --unseal-key: the key that opens what is sealed"))
	}
	if o.maxWatch < 0 {
		errs = append(errs, fmt.Errorf("--max-feedback-watch must not be negative, got %d; 0 means none", o.maxWatch))
	}
	if o.maxRawLength < 1 || o.maxRawLength > agent.DefaultMaxJSONRawLength {
		errs = append(errs, fmt.Errorf("--max-json-raw-length must be 1 to %d, the limit in the schema of ManifestWork; got %d", agent.DefaultMaxJSONRawLength, o.maxRawLength))
	}
	if o.maxRawLength != agent.DefaultMaxJSONRawLength && !o.features.Enabled(rawFeedback) {
		errs = append(errs, fmt.Errorf("--max-json-raw-length=%d has no effect without --feature-gates=%s=true; set both or neither", o.maxRawLength, rawFeedback))
	}
	errs = append(errs, o.readTransport()...)
	errs = append(errs, o.kube.Validate()...)
	if o.clientID == "" {
		o.clientID = o.cluster + "-agent"
	}
	if o.leader.Name == "" && o.cluster != "" {
		o.leader.Name = "work-agent-" + o.cluster
	}
	if o.leader.Name != "" {
		errs = append(errs, o.leader.Validate()...)
	}
	errs = append(errs, o.serve.Validate()...)
	errs = append(errs, o.tracing.Validate()...)
	return append(errs, o.logging.Validate()...)
}

func (o *options) readTransport() []error {
	if o.joinSecret != "" {
		return o.validateJoin()
	}
	if o.transportConfig == "" {
		return []error{errors.New("--transport-config is required; set it to a YAML file with the broker's address, or set --join-secret")}
	}
	broker, err := config.Load(o.transportConfig)
	if err != nil {
		return []error{fmt.Errorf("--transport-config: %w", err)}
	}
	o.broker = broker
	if o.hubIdentity, err = broker.HubIdentity(); err != nil {
		return []error{fmt.Errorf("--transport-config: %s: %w", o.transportConfig, err)}
	}
	if o.cluster == "" {
		return nil
	}
	if _, err := broker.Topics.ForAgent(wire.ClusterName(o.cluster)); err != nil {
		return []error{fmt.Errorf("--transport-config: %s: %w", o.transportConfig, err)}
	}
	return nil
}

// openRecords opens the audit log, and what exports traces.
func (o *options) openRecords(registry prometheus.Registerer, logger *slog.Logger) (*audit.Log, *otlp.Exporter, error) {
	records, err := audit.Open(audit.Config{Path: o.audit, Program: "work-agent", Registerer: registry, Logger: logger})
	if err != nil {
		return nil, nil, err
	}
	traces, err := otlp.New(otlp.Config{Options: o.tracing, Service: "work-agent", Registerer: registry, Logger: logger})
	return records, traces, err
}

// run serves the cluster until ctx ends, while this replica leads.
func (o *options) run(ctx context.Context) error {
	kubeConfig, err := o.kube.RESTConfig(workv1.DefaultFieldManager)
	if err != nil {
		return err
	}
	logger := o.logging.Logger(os.Stderr)
	o.logging.SetKlog(logger)
	registry := serve.NewRegistry()
	if err := kube.CountRequests(kubeConfig, registry); err != nil {
		return err
	}
	config, err := o.agentConfig(registry, logger)
	if err != nil {
		return err
	}
	logger.Info("starting", "version", version.Version, "cluster", o.cluster, "broker", cmp.Or(o.broker.BrokerHost, "that of "+o.joinSecret), "clientID", o.clientID)

	records, traces, err := o.openRecords(registry, logger)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { records.Run(ctx); return nil })
	group.Go(func() error { return traces.Run(ctx) })
	group.Go(func() error { return memory.ReturnAtRest(ctx) })
	// Only the leader has an agent: a replica on standby holds no state.
	running := &standby{}
	if o.serve.Enabled() {
		server, err := serve.New(serve.Config{Options: o.serve, Registry: registry, Logger: logger, Ready: running.checks()})
		if err != nil {
			return err
		}
		group.Go(func() error { return server.Run(ctx) })
	}
	group.Go(func() error {
		var term *agent.Term
		began := func(t leader.Term) { term = &agent.Term{Lease: string(t.Lease), Transitions: t.Transitions} }
		return leader.Run(ctx, leader.Config{Options: o.leader, REST: kubeConfig, Term: began, Logger: logger}, func(ctx context.Context) error {
			member, err := o.join(ctx, kubeConfig, running, logger)
			if err != nil || ctx.Err() != nil {
				return err
			}
			connection, err := mqtt.New(mqtt.Config{Broker: o.link.keepAlive(o.broker), ClientID: o.clientID, Logger: logger, Registerer: registry, Refused: member.Refused})
			if err != nil {
				return err
			}
			config.BrokerHost, config.Topics = o.hubIdentity, o.broker.Topics
			config.Transport, config.Kube, config.Term = member.Transport(connection), kubeConfig, term
			config.Audit, config.TracerProvider = records, traces.TracerProvider()
			a, err := agent.New(config)
			if err != nil {
				return err
			}
			running.agent.Store(a)
			members, ctx := errgroup.WithContext(ctx)
			members.Go(func() error { return member.Run(ctx) })
			members.Go(func() error { return a.Run(ctx) })
			return members.Wait()
		})
	})
	return group.Wait()
}

// agentConfig returns what the flags say, but for the broker, with the files that they name opened.
func (o *options) agentConfig(registry prometheus.Registerer, logger *slog.Logger) (c agent.Config, err error) {
	c = agent.Config{
		Cluster: wire.ClusterName(o.cluster), ClientID: o.clientID, AgentID: o.agentID, TakesOver: wire.ClusterName(o.takesOver),
		MaxUplink: int(o.maxUplink.Value()), MaxSourceSpecs: o.maxSourceSpecs.Value(),
		StateDir: o.stateDir, Workers: o.workers, SyncInterval: o.syncInterval, EvictionGrace: o.evictionGrace,
		DigestInterval: cmp.Or(o.digests(), -1), SignatureMaxAge: cmp.Or(o.signatureMaxAge, -1),
		MaxFeedbackWatch: cmp.Or(o.maxWatch, -1), WithoutReadiness: !o.readiness, RawFeedback: o.features.Enabled(rawFeedback), MaxJSONRawLength: o.maxRawLength,
		ExecutorCaches: o.features.Enabled(executorCaches), Registerer: registry, Logger: logger,
	}
	if o.trustedKeys != "" { // else all events are believed
		if c.TrustedKeys, err = signing.OpenTrustedKeys(signing.TrustedKeysConfig{File: o.trustedKeys, Logger: logger}); err != nil {
			return c, fmt.Errorf("--trusted-keys: %w", err)
		}
	}
	if o.signingKey != "" {
		signer, err := signing.NewSigner(signing.SignerConfig{KeyFile: o.signingKey, Logger: logger})
		if err != nil {
			return c, fmt.Errorf("--signing-key: %w", err)
		}
		c.Sign = signer.SignStatus
	}
	if len(o.unsealKeys) > 0 {
		sealed := sealing.UnsealerConfig{Files: o.unsealKeys, Registerer: registry, Logger: logger}
		for _, source := range o.requireSealed {
			sealed.Required = append(sealed.Required, wire.SourceID(source))
		}
		if c.Unseal, err = sealing.NewUnsealer(sealed); err != nil {
			return c, fmt.Errorf("--unseal-key: %w", err)
		}
	}
	if o.policy != "" {
		if c.Policy, err = policy.Open(policy.Config{File: o.policy, Registerer: registry, Logger: logger}); err != nil {
			return c, fmt.Errorf("--policy: %w", err)
		}
	}
	return c, nil
}

// standby is the agent of this process, which has none until it leads. A replica on standby is
// healthy.
type standby struct {
	agent  atomic.Pointer[agent.Agent]
	member atomic.Pointer[membership.Membership] // while there is no agent
}

// checks returns the checks of /readyz.
func (s *standby) checks() []serve.Check {
	return []serve.Check{
		{Name: "agent", Func: func(context.Context) error { return s.check((*agent.Agent).Ready) }},
		{Name: "broker", Func: func(context.Context) error { return s.check((*agent.Agent).Connected) }},
	}
}

// check returns the result of a check of the agent, nil if there is none.
func (s *standby) check(of func(*agent.Agent) error) error {
	if a := s.agent.Load(); a != nil {
		return of(a)
	}
	if m := s.member.Load(); m != nil {
		return m.Ready()
	}
	return nil
}
