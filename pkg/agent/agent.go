// Package agent keeps one cluster as the works that sources send for it say,
// and reports how it is. It needs a broker connection only to hear of changes and
// to report: what it was told before, it keeps in force without one.
//
//	a, err := agent.New(agent.Config{Cluster: "cluster1", Topics: topics, BrokerHost: host,
//		Transport: link, Kube: restConfig})
//	...
//	err = a.Run(ctx)
//
// The flow is one line, a package a step:
//
//	transport → inbox → strategy → applied → observe → feedback, condition → outbox → transport
//
// Specs received are held by inbox. Whatever concerns a work, a spec, a change of
// one of its objects, a kind that has come, puts its name into one queue, from
// which a worker takes it and brings the cluster to what the spec says
// (reconcile.go, remove.go): strategy decides and writes, against what observe
// holds in memory; applied records on the cluster what was done; feedback and
// condition make the status of what is seen, and outbox reports it.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/agent/applied"
	"github.com/workwire/workwire/pkg/agent/conditionrules"
	"github.com/workwire/workwire/pkg/agent/executor"
	"github.com/workwire/workwire/pkg/agent/feedback"
	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/observe"
	"github.com/workwire/workwire/pkg/agent/outbox"
	"github.com/workwire/workwire/pkg/agent/restmapper"
	"github.com/workwire/workwire/pkg/agent/store"
	"github.com/workwire/workwire/pkg/agent/strategy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Defaults of [Config].
const (
	DefaultWorkers      = 16
	DefaultSyncInterval = 10 * time.Second
	// DefaultEvictionGrace is how long an AppliedManifestWork outlives its work.
	DefaultEvictionGrace    = time.Hour
	DefaultMaxFeedbackWatch = 50
	DefaultMaxJSONRawLength = 1024
)

const (
	// firstRetry and lastRetry bound the wait before a work that failed is tried
	// again; it doubles.
	firstRetry = 5 * time.Millisecond
	lastRetry  = time.Minute
	// catchUpTimeout bounds how long the start waits for watches.
	catchUpTimeout = 30 * time.Second
)

// Config configures [New].
type Config struct {
	// Cluster that the agent serves. Required.
	Cluster wire.ClusterName
	// ClientID of the agent at the broker, the source of its events. Required.
	ClientID string
	// AgentID is written to the AppliedManifestWorks, which belong to the agent
	// with that id. Default: the hub hash.
	AgentID string
	// BrokerHost is hashed into the names of AppliedManifestWorks. Required.
	BrokerHost string
	// Topics to subscribe and publish to. Required.
	Topics wire.Topics
	// Transport to the broker; Run runs it. Required.
	Transport transport.Transport
	// Kube is how to reach the cluster. Required.
	Kube *rest.Config
	// StateDir keeps works and unsent statuses over a restart; empty keeps them in
	// memory, and asks the sources again.
	StateDir string
	// Workers is how many works are brought up to date at a time. Default 16.
	Workers int
	// SyncInterval is how often objects are read that are not watched. Default 10 s.
	SyncInterval time.Duration
	// MaxFeedbackWatch is the most objects that have a watch of their own: ReadOnly
	// ones with feedbackScrapeType Watch. Others of them are polled. Negative: none;
	// default 50.
	MaxFeedbackWatch int
	// RawFeedback reports values of any JSON type (the feature gate
	// RawFeedbackJsonString), of at most MaxJSONRawLength bytes, default 1024.
	RawFeedback      bool
	MaxJSONRawLength int
	// ExecutorCaches answers what an executor may do from memory (the feature gate
	// ExecutorValidatingCaches), for clusters that authorize by RBAC only.
	ExecutorCaches bool
	// EvictionGrace is how long an AppliedManifestWork of the agent's stays that no
	// work stands behind. A hundred years or more: for ever. Default 1 h.
	EvictionGrace time.Duration
	// Idle is called when nothing is to be done after much was, such as the first
	// works: a time to give memory back. It may take some milliseconds. Optional.
	Idle func()
	// Registerer for the agent's metrics; nil for none.
	Registerer prometheus.Registerer
	// Logger; nil for slog.Default().
	Logger *slog.Logger
}

func (c *Config) complete() error {
	if c.Cluster == "" || c.ClientID == "" || c.BrokerHost == "" || c.Transport == nil || c.Kube == nil {
		return errors.New("agent: Cluster, ClientID, BrokerHost, Transport and Kube are required")
	}
	if c.Workers < 0 || c.SyncInterval < 0 || c.EvictionGrace < 0 || c.MaxJSONRawLength < 0 {
		return fmt.Errorf("agent: Workers %d, SyncInterval %v, EvictionGrace %v and MaxJSONRawLength %d must not be negative",
			c.Workers, c.SyncInterval, c.EvictionGrace, c.MaxJSONRawLength)
	}
	if c.AgentID == "" {
		c.AgentID = applied.HubHash(c.BrokerHost, "")
	}
	if c.Workers == 0 {
		c.Workers = DefaultWorkers
	}
	if c.SyncInterval == 0 {
		c.SyncInterval = DefaultSyncInterval
	}
	if c.EvictionGrace == 0 {
		c.EvictionGrace = DefaultEvictionGrace
	}
	if c.MaxFeedbackWatch == 0 {
		c.MaxFeedbackWatch = DefaultMaxFeedbackWatch
	}
	c.MaxFeedbackWatch = max(c.MaxFeedbackWatch, 0)
	if c.MaxJSONRawLength == 0 {
		c.MaxJSONRawLength = DefaultMaxJSONRawLength
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return nil
}

// Agent serves one cluster. See [New].
type Agent struct {
	config Config
	topics wire.AgentTopics

	state     *store.Store // nil without a state directory
	inbox     *inbox.Inbox
	client    dynamic.Interface
	mapper    *restmapper.Mapper
	objects   *observe.Objects[string]
	records   *applied.Client
	named     *observe.Named[string] // objects that are not the agent's own
	applier   *strategy.Applier
	executors *executor.Executor[string]
	rules     *conditionrules.Evaluator
	feedback  *feedback.Reader
	outbox    *outbox.Outbox

	holders  *holders
	waiting  *waiting
	queue    workqueue.TypedRateLimitingInterface[string] // names to bring up to date
	asks     workqueue.TypedInterface[wire.SourceID]      // sources to ask for specs
	works    *workMemories
	news     *news
	answers  *answers
	presence *presence
	metrics  *metrics

	synced    atomic.Bool
	connected atomic.Bool
	passes    atomic.Uint64
	busy      chan struct{} // wakes runIdle
}

// New makes an agent that does nothing until Run. It opens the state directory,
// if there is one, and fails when that, or the configuration, is unusable.
func New(config Config) (*Agent, error) {
	if err := config.complete(); err != nil {
		return nil, err
	}
	topics, err := config.Topics.ForAgent(config.Cluster)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		config:  config,
		topics:  topics,
		holders: newHolders(),
		waiting: newWaiting(),
		works:   newWorkMemories(),
		news:    newNews(),
		answers: newAnswers(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry),
			workqueue.TypedRateLimitingQueueConfig[string]{Name: "works"}),
		asks: workqueue.NewTyped[wire.SourceID](),
		busy: make(chan struct{}, 1),
	}
	if a.presence, err = newPresence(&a.config, topics); err != nil {
		return nil, err
	}
	if config.StateDir != "" {
		if a.state, err = store.Open(store.Config{Dir: config.StateDir, Logger: config.Logger}); err != nil {
			return nil, err
		}
	}
	if err := a.connectSteps(); err != nil {
		return nil, errors.Join(err, a.state.Close())
	}
	a.metrics = newMetrics(config.Registerer, a)
	return a, nil
}

// connectSteps makes the steps of the flow, each told who comes next.
func (a *Agent) connectSteps() error {
	config := a.config
	httpClient, err := rest.HTTPClientFor(config.Kube)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	dynamicConfig := dynamic.ConfigFor(config.Kube)
	dynamicClient, err := dynamic.NewForConfigAndClient(dynamicConfig, httpClient)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	dynamicConfig.GroupVersion = &schema.GroupVersion{}
	rawClient, err := rest.UnversionedRESTClientForConfigAndClient(dynamicConfig, httpClient)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	works, err := workclient.NewForConfigAndClient(config.Kube, httpClient)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	hash := object.AgentHash(config.AgentID)
	a.inbox = inbox.New(inbox.Config{Store: a.state, Changed: a.specChanged, Logger: config.Logger})
	a.mapper, err = restmapper.New(restmapper.Config{Client: rawClient, Logger: config.Logger, Changed: func(kind schema.GroupKind) {
		for _, name := range a.waiting.on(kind) {
			a.retryNow(name)
		}
	}})
	if err != nil {
		return err
	}
	a.client = dynamicClient
	a.objects = observe.NewObjects(observe.ObjectsConfig[string]{
		Client: dynamicClient, Selector: object.AgentLabel + "=" + hash, Changed: a.objectChanged, Logger: config.Logger,
	})
	a.records = applied.NewClient(applied.Config{
		Client: works, AgentID: config.AgentID, Changed: a.recordChanged, Logger: config.Logger,
	})
	a.applier = strategy.New(strategy.Config{
		Client: rawClient, Cache: a.objects, AgentHash: hash, FieldManager: workv1.DefaultFieldManager, NotServed: a.mapper.Forget,
	})
	a.named = observe.NewNamed(observe.NamedConfig[string]{
		Client: dynamicClient, Max: config.MaxFeedbackWatch, Changed: a.queue.Add, Logger: config.Logger,
	})
	a.executors = executor.New(executor.Config[string]{
		Client: rawClient, InMemory: config.ExecutorCaches, Changed: a.queue.Add, Logger: config.Logger,
	})
	if a.rules, err = conditionrules.New(conditionrules.Config{}); err != nil {
		return err
	}
	a.feedback = feedback.New(feedback.Config{RawJSON: config.RawFeedback, MaxRawLength: config.MaxJSONRawLength})
	a.outbox, err = outbox.New(outbox.Config{
		Agent: config.ClientID, Publisher: config.Transport, Topic: a.topics.Events, Store: a.state,
		Done: a.reported, Logger: config.Logger,
	})
	return err
}

// Run serves the cluster until ctx ends; then it reports what is pending, within
// a few seconds, and returns nil. It fails when something ends that must not. It
// must be called once.
func (a *Agent) Run(ctx context.Context) error {
	if err := a.load(); err != nil {
		return errors.Join(err, a.state.Close())
	}
	// What is downstream outlives what is upstream: the workers end first, then the
	// outbox, once it has reported, then the connection, then the state file.
	late := context.WithoutCancel(ctx)
	storing, stopStore := context.WithCancel(late)
	linked, stopLink := context.WithCancel(late)
	defer stopStore()
	defer stopLink()

	var link, state errgroup.Group
	state.Go(func() error { return a.state.Run(storing) })
	group, working := errgroup.WithContext(ctx)
	group.Go(func() error { return a.mapper.Run(working) })
	group.Go(func() error { return a.records.Run(working) })
	group.Go(func() error { return a.objects.Run(working) })
	group.Go(func() error { return a.named.Run(working) })
	group.Go(func() error { return a.executors.Run(working) })
	group.Go(func() error { return a.outbox.Run(working) })
	group.Go(func() error {
		a.runAsks(working)
		return nil
	})
	group.Go(func() error {
		a.presence.run(working)
		return nil
	})
	group.Go(func() error {
		a.runIdle(working)
		return nil
	})
	group.Go(func() error {
		if !a.catchUp(working) {
			return nil
		}
		ended := make(chan error, 1)
		link.Go(func() error {
			ended <- a.config.Transport.Run(linked, a.handler())
			return nil
		})
		group.Go(func() error {
			select {
			case err := <-ended:
				return err
			case <-working.Done():
				return nil
			}
		})
		a.runWorkers(working)
		return nil
	})
	err := group.Wait()
	a.synced.Store(false)
	a.presence.leave(late)
	stopLink()
	err = errors.Join(err, link.Wait())
	stopStore()
	return errors.Join(err, state.Wait())
}

// load reads the state directory.
func (a *Agent) load() error {
	if err := a.inbox.Load(); err != nil {
		return err
	}
	return a.outbox.Load(func(key inbox.Key) bool {
		_, held := a.inbox.Get(key)
		return held
	})
}

// catchUp learns what the cluster holds from before: the records, and the objects
// that they name. It reports false when ctx ended first.
func (a *Agent) catchUp(ctx context.Context) bool {
	select {
	case <-a.records.Synced():
	case <-ctx.Done():
		return false
	}
	for record := range a.records.All() {
		a.recover(record)
	}
	// A type whose watch neither delivers nor fails must not hold up the others.
	bounded, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	a.objects.Wait(bounded)
	a.synced.Store(true)
	a.config.Logger.Info("the cluster's state is known", "works", a.inbox.Len())
	return ctx.Err() == nil
}

// recover takes up a record of ours: its objects are watched, and its work is
// known, if only by name, until its source sends it again.
func (a *Agent) recover(record *workv1.AppliedManifestWork) {
	if record.Spec.AgentID != a.config.AgentID {
		return
	}
	source, uid := a.sourceOf(record), record.Annotations[applied.UIDAnnotation]
	if a.recordName(source, record.Spec.ManifestWorkName) != record.Name {
		return // another hub's
	}
	resources, err := applied.Resources(record)
	if err != nil {
		a.config.Logger.Warn("what was about to be applied is not known", "appliedManifestWork", record.Name, "error", err)
	}
	refs := make([]object.Ref, 0, len(resources))
	for _, r := range resources {
		refs = append(refs, r.Ref)
	}
	a.objects.Follow(record.Name, refs)
	if uid == "" || source == "" {
		return
	}
	key := inbox.Key{Source: source, UID: types.UID(uid)}
	if a.inbox.Recover(key, a.config.Cluster, record.Spec.ManifestWorkName) {
		a.holders.add(record.Name, key)
	}
}

// sourceOf gives the source of a record's work: the one that the topics name, or
// what the record's label says.
func (a *Agent) sourceOf(record *workv1.AppliedManifestWork) wire.SourceID {
	if source, one := a.topics.Source(); one {
		return source
	}
	return wire.SourceID(record.Labels[workv1.OriginalSourceLabelKey])
}

// hubHash is the hash that stands for source in the names of records.
func (a *Agent) hubHash(source wire.SourceID) string {
	if _, one := a.topics.Source(); one {
		source = ""
	}
	return applied.HubHash(a.config.BrokerHost, source)
}

// recordName is the name under which a work is dealt with, valid or not.
func (a *Agent) recordName(source wire.SourceID, work string) string {
	return a.hubHash(source) + "-" + work
}

// Ready reports why the agent is not at work yet, nil when it is: the cluster's
// state is known, and the state directory can be written.
func (a *Agent) Ready() error {
	if !a.synced.Load() {
		return errors.New("the cluster's state is not known yet")
	}
	return a.state.Err()
}

// Connected reports why the agent hears of no changes, nil when it does.
func (a *Agent) Connected() error {
	if !a.connected.Load() {
		return fmt.Errorf("no connection to the broker %s", a.config.BrokerHost)
	}
	return nil
}
