package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/fairqueue"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/security/signing"
	"github.com/workwire/workwire/pkg/source/instances"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults and limits of [Config].
const (
	DefaultPublishWorkers = 64
	DefaultStatusWorkers  = 16
	DefaultRepublishAfter = 30 * time.Second
	maxWorkers            = 1024
	// maxReceived is how many messages wait until those before them are handled. The transport waits for the others.
	maxReceived = 1_000
)

// Config configures an [Engine].
type Config struct {
	// Source is the id of the source; required.
	Source wire.SourceID
	// Topics are the topics of the transport configuration; required. They must be valid for
	// Source.
	Topics wire.Topics
	// Transport connects to the broker; required. [Engine.Run] runs it.
	Transport transport.Transport
	// BeforePublish returns nil once this program may publish, and may block until its context ends: nothing is published that
	// it returns an error for. Optional.
	BeforePublish func(context.Context) error
	// Works stores the works of the source; required.
	Works WorkStore

	// Annotations are what a spec is published with where its work does not have them. Optional.
	Annotations map[string]string
	// PublishWorkers is the maximum number of concurrent publishes: 1 to 1024, default 64.
	PublishWorkers int
	// StatusWorkers is the maximum number of concurrent calls of [WorkStore.UpdateStatus] for works of replica sets, and for others:
	// 1 to 1024, default 16.
	StatusWorkers int
	// RepublishAfter is how long a work may stay unconfirmed, while its cluster sends messages,
	// before it is published again; three times as long as confirmations take at the moment, if that is
	// longer, up to 10 times RepublishAfter. The pause doubles with each repetition, up to 20 times
	// RepublishAfter. Default 30 s.
	RepublishAfter time.Duration

	// Identity returns the identity of the source's memory (docs/protocol.md, Source identity). Run
	// calls it once, before it connects; it may block until its context ends. Optional: without an
	// identity, specs have no content hash, and what an agent holds is compared by generation
	// alone.
	Identity func(context.Context) (string, error)
	// ClusterIdentity returns what a cluster is told as that identity, if not identity itself: another one each time that
	// the source registers the cluster, since it then no longer knows what the cluster had before. It must not block.
	// Broadcasts, which are for all clusters, have none then. Optional.
	ClusterIdentity func(identity string, cluster wire.ClusterName) string
	// Sign signs every event that the source publishes (docs/protocol.md, Signatures), as
	// [signing.Signer] does. Optional.
	Sign func(*cloudevents.Event) error
	// Seal seals the specs of clusters that have a key (docs/protocol.md, Sealed data). It needs Sign.
	// Optional.
	Seal *sealing.Sealer
	// TrustedAgents are the keys that the agents of all clusters sign their statuses with
	// (docs/protocol.md, Signatures): of other statuses, and of replayed ones, nothing counts. Default:
	// all statuses are believed.
	TrustedAgents *signing.TrustedAgents
	// SignatureMaxAge is how old the signature of a status may be, and how far ahead of this clock.
	// Negative: no limit, also not of what was signed before the Engine started; default 1 h.
	SignatureMaxAge time.Duration

	// Observe is called with each [Event] while Run runs, in order, and never by a caller of the Engine. It may call
	// the Engine, and must not block: publishes and messages wait for it. Optional.
	Observe func(Event)

	// Clusters is the state of the clusters that [Engine.SetCluster] has not been called for; default
	// [ClusterOpen].
	Clusters ClusterState
	// Shard names the clusters that this program serves, to other programs under the same source id; see
	// [instances.Config]. Empty: all of them.
	Shard string
	// Quota is what each cluster may cost; the zero Rates are no limit. Default: [quota.Clusters].
	Quota *quota.Rates
	// InstanceInterval is how often this program announces itself to others under the same source id.
	// Another one is noticed after about this time. Default 30 s.
	InstanceInterval time.Duration

	// Audit gets a record for each spec published and each status received. Default: none.
	Audit *audit.Log
	// Logger receives failures with the name and uid of the work, and each event at debug level;
	// default slog.Default().
	Logger *slog.Logger
	// TracerProvider makes the spans of changes (docs/tracing.md); nil makes none.
	TracerProvider trace.TracerProvider
	// Registerer registers the metrics workwire_source_*; nil registers none.
	Registerer prometheus.Registerer
}

// setDefaults sets the defaults and reports all invalid fields.
func (c *Config) setDefaults() error {
	errs := []error{required.Fields(c, "Transport", "Works")}
	c.PublishWorkers = cmp.Or(c.PublishWorkers, DefaultPublishWorkers)
	c.StatusWorkers = cmp.Or(c.StatusWorkers, DefaultStatusWorkers)
	c.RepublishAfter = cmp.Or(c.RepublishAfter, DefaultRepublishAfter)
	c.SignatureMaxAge = max(cmp.Or(c.SignatureMaxAge, signing.DefaultMaxAge), 0)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	if c.Quota == nil {
		c.Quota = ptr.To(quota.Clusters())
	}
	if n := c.PublishWorkers; n < 1 || n > maxWorkers {
		errs = append(errs, fmt.Errorf("PublishWorkers must be 1 to %d, got %d", maxWorkers, n))
	}
	if n := c.StatusWorkers; n < 1 || n > maxWorkers {
		errs = append(errs, fmt.Errorf("StatusWorkers must be 1 to %d, got %d", maxWorkers, n))
	}
	if c.InstanceInterval < 0 {
		errs = append(errs, fmt.Errorf("InstanceInterval must be above 0, got %s", c.InstanceInterval))
	}
	if c.RepublishAfter < 0 {
		errs = append(errs, fmt.Errorf("RepublishAfter must be above 0, got %s", c.RepublishAfter))
	}
	if c.Seal != nil && c.Sign == nil {
		errs = append(errs, errors.New("Seal needs Sign: whoever can forge works can have a cluster tell what others hold"))
	}
	if c.Sign == nil {
		c.Sign = func(*cloudevents.Event) error { return nil }
	}
	if c.BeforePublish == nil {
		c.BeforePublish = func(context.Context) error { return nil }
	}
	if c.Observe == nil {
		c.Observe = func(Event) {}
	}
	return errors.Join(errs...)
}

// Engine delivers the works of a source and receives their statuses. All methods are safe for
// concurrent use.
type Engine struct {
	config  Config
	topics  wire.SourceTopics
	log     *slog.Logger
	metrics *metrics
	// identity is set by Run before it starts anything.
	identity string

	mu        sync.Mutex
	core      *core         // guarded by mu
	begun     chan action   // to be carried out
	due       time.Time     // guarded by mu: when timer passes the time to core; zero: never
	timer     *time.Timer   // guarded by mu
	stopped   bool          // guarded by mu: Run has ended, and the timer with it
	events    []Event       // guarded by mu: to be observed
	eventful  chan struct{} // has room for one: a step has added to events
	observing sync.Mutex    // taken before mu: of who passes on events
	observed  []Event       // guarded by observing: memory for events

	instances     *instances.Watcher
	contentHashes flowcontrol.PassiveRateLimiter // of works whose specs this Engine did not publish

	recent *recentStatuses
	// contents are the bases of spec deltas.
	contents *publishedContents

	received *fairqueue.Line[transport.Message, wire.ClusterName]

	tracer   *tracing.Tracer           // nil: none
	changes  *tracing.Changes[workKey] // to be published
	statuses *tracing.Changes[workKey] // to be stored
}

// New returns an Engine. It does no I/O and starts nothing. It returns an error that names every
// invalid field of config, or the metric that cannot be registered.
func New(config Config) (*Engine, error) {
	configErr := config.setDefaults()
	topics, err := config.Topics.ForSource(config.Source)
	if err := errors.Join(configErr, err); err != nil {
		return nil, fmt.Errorf("source %q: %w", config.Source, err)
	}
	e := &Engine{
		config: config,
		topics: topics,
		core:   newCore(&config),
		tracer: tracing.New(config.TracerProvider),

		begun:         make(chan action, config.PublishWorkers+2*config.StatusWorkers+resyncWorkers),
		eventful:      make(chan struct{}, 1),
		recent:        newRecentStatuses(),
		contents:      newPublishedContents(),
		contentHashes: flowcontrol.NewTokenBucketPassiveRateLimiter(contentHashRate, contentHashBurst),
	}
	// The lines about a cluster are paid by it.
	e.log = slog.New(quota.LimitLog(config.Logger.Handler(), "cluster")).With("source", config.Source)
	e.changes, e.statuses = tracing.NewChanges[workKey](e.tracer), tracing.NewChanges[workKey](e.tracer)
	e.received = fairqueue.NewLine(maxReceived, func(m transport.Message) wire.ClusterName {
		_, cluster, _ := wire.TopicSender(m.Topic)
		return cluster
	})
	e.instances = instances.New(instances.Config{
		Source: config.Source, Shard: config.Shard, Topics: topics, Transport: config.Transport, BeforePublish: config.BeforePublish, Interval: config.InstanceInterval,
		OnChange: func(others []instances.Other) { e.report(InstancesChanged{others}) }, Logger: e.log,
	}, time.Now())
	if e.metrics, err = newMetrics(config.Registerer, e); err != nil {
		return nil, fmt.Errorf("source %q: register metrics: %w", config.Source, err)
	}
	return e, nil
}

// Run runs the transport and delivers works and statuses until ctx ends. It returns nil then, after
// all goroutines it started have ended, or the transport's error. Statuses that were acknowledged
// but not stored yet are requested again at the next start. Run must be called once, after the
// WorkStore is complete.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer e.passOn() // what the last ones have done
	defer e.stopTimer()
	defer running.Wait()
	defer cancel()
	if err := e.begin(ctx); ctx.Err() != nil {
		return nil
	} else if err != nil {
		return err
	}
	running.Go(func() { e.config.Seal.Run(ctx, e.resealCluster) })
	running.Go(func() { e.runEvents(ctx) })
	running.Go(func() { e.runActions(ctx) })
	running.Go(func() { e.received.Run(ctx, e.receive) })
	err := e.config.Transport.Run(ctx, transport.Handler{
		Subscriptions: e.topics.Subscriptions(),
		Optional:      []string{e.instances.Topic()},
		Connected:     e.connected,
		Received:      func(_ context.Context, m transport.Message) { e.received.Add(m) },
	})
	if err != nil {
		return fmt.Errorf("source %q: %w", e.config.Source, err)
	}
	return nil
}

// begin has the works of the store published once there is a connection.
func (e *Engine) begin(ctx context.Context) (err error) {
	e.core.signatures = signing.Window{MaxAge: e.config.SignatureMaxAge, Started: time.Now()}
	if e.config.Identity != nil {
		if e.identity, err = e.config.Identity(ctx); err != nil {
			return fmt.Errorf("source %q: read its identity: %w", e.config.Source, err)
		}
	}
	for _, name := range slices.Sorted(e.config.Works.Clusters()) {
		for work := range e.config.Works.ListCluster(name) {
			e.WorkChanged(work.UID)
		}
	}
	return nil
}

// WorkChanged publishes the work with this UID if its current state in the WorkStore is not
// published yet. It may be called for every change of a work, also for those that do not concern
// the agent. It does not block and may be called before Run.
func (e *Engine) WorkChanged(uid types.UID) { e.WorkChangedBy(uid, trace.SpanContext{}) }

// WorkChangedBy is WorkChanged for a change that was made within a span, whose trace it continues;
// cause may be invalid.
func (e *Engine) WorkChangedBy(uid types.UID, cause trace.SpanContext) {
	held, ok := e.config.Works.Get(uid)
	if !ok {
		return
	}
	k := keyOf(held.Work)
	if e.stateOf(k.cluster) == ClusterElsewhere {
		return // nobody would end the change
	}
	e.changes.Seen(k, held.Work.Generation, cause)
	e.step(workChanged{k})
}

// WorkRestored publishes a work as authoritative, once the WorkStore returns it: its content is not the one that
// had this generation, or its generation is lower than before, as after the store was restored from
// a backup. It does not block and may be called before Run.
func (e *Engine) WorkRestored(work *workv1.ManifestWork) { e.step(workRestored{keyOf(work), repeat}) }

// WorkRemoved publishes the deletion of a work that was removed from the WorkStore, until its agent
// reports Deleted; last is its last known state. It does not block and may be called before Run.
func (e *Engine) WorkRemoved(last *workv1.ManifestWork) {
	meta := metadataFor(&last.ObjectMeta)
	e.step(workRemoved{keyOf(last), removedWork{generation: wire.Generation(last.Generation), deletedAt: last.DeletionTimestamp, meta: &meta}})
}

// WorkForgotten has a work given up that the WorkStore does not return any more: nothing is published about it, and nothing is
// known of it any more, so that a resync request that lists it is answered as [WorkStore.Unknown] says. It does not block and
// may be called before Run.
func (e *Engine) WorkForgotten(last *workv1.ManifestWork) { e.step(workForgotten{keyOf(last)}) }

// WorkLost publishes that the source does not know a work, as the answer to a resync request that
// lists it would: nobody was seen deleting it, and the store may have been restored from a backup.
// The agent decides whether to believe it (docs/protocol.md, Source identity). last is its last
// known state. It does not block and may be called before Run.
func (e *Engine) WorkLost(last *workv1.ManifestWork) {
	e.step(workLost{keyOf(last), wire.Generation(last.Generation)})
}

// ReportDelivery has [WorkStore.WriteDelivery] called for a work, whether the WorkStore returns it or
// not. It does not block.
func (e *Engine) ReportDelivery(work *workv1.ManifestWork) {
	e.step(storeWanted{keyOf(work), ownerOf(work), statusUpdate{name: work.Name, delivery: true}})
}

// StatusesPending returns how many works have a status that waits for the WorkStore, or is being written. What waits until its
// cluster may write again is not among them.
func (e *Engine) StatusesPending() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.stores.atOnce()
}

// StatusesLost asks the agents of a cluster for the statuses that the WorkStore does not have: they
// may be older than before, as after the store was restored from a backup. It does not block.
func (e *Engine) StatusesLost(cluster wire.ClusterName) {
	e.step(asked{cluster, resyncTask{requestStatuses: true}})
}

// resealCluster publishes the works of a cluster again, whose key is another one than before. It
// costs O(n) for n works of the cluster.
func (e *Engine) resealCluster(cluster wire.ClusterName) {
	e.log.Info("the key of a cluster has changed, publishing its works again", "cluster", cluster)
	for work := range e.config.Works.ListCluster(cluster) {
		e.step(keyChanged{keyOf(work)})
	}
}

// ProbeCluster asks the cluster's agents for a message, which becomes a [ClusterHeard]. It does not block.
func (e *Engine) ProbeCluster(cluster wire.ClusterName) {
	e.step(asked{cluster, resyncTask{probe: true}})
}

// Connected reports whether the transport is connected to the broker.
func (e *Engine) Connected() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.connection != 0
}

// connected handles a new connection, which lasts until ctx ends.
func (e *Engine) connected(ctx context.Context, c transport.Connection) {
	in := &connected{limit: c.Limit, clusters: slices.Sorted(e.config.Works.Clusters())}
	e.step(in)
	ended := disconnected{in.number}
	context.AfterFunc(ctx, func() { e.step(ended) })
	e.probeAllClusters(ctx)
	e.instances.Run(ctx)
	<-ctx.Done()
	e.step(ended) // so that it is observed before Run returns
}

// ownerOf returns the replica set of a work; empty if it has none.
func ownerOf(work *workv1.ManifestWork) string { return work.Labels[workv1.ReplicaSetLabelKey] }

func keyOf(work *workv1.ManifestWork) workKey {
	return workKey{uid: work.UID, cluster: wire.ClusterName(work.Namespace)}
}
