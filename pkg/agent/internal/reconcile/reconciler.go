package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/feedback"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/pods"
	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/policy"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/runtime/walltime"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/wire"
)

// Config configures [New]. Fields without a default are required.
type Config struct {
	// Cluster that the agent serves.
	Cluster wire.ClusterName
	// Owner selects the AppliedManifestWorks that belong to the agent.
	Owner applied.Owner
	// BrokerHost and Topics determine the names of AppliedManifestWorks.
	BrokerHost string
	Topics     wire.AgentTopics

	// Table whose names are reconciled. The watches below report to it.
	Table *Table
	// The steps of a reconcile, in order.
	Inbox      *inbox.Inbox
	RESTMapper *restmapper.Mapper
	Applied    *applied.Client
	Executors  *executor.Executor[string]
	Policy     *policy.File // of the cluster's owner; nil: none
	Applier    *apply.Applier
	Objects    *observe.Watches  // by type, with the agent's label
	Named      *observe.Watches  // one by one, without the label
	Client     dynamic.Interface // reads objects that are not watched
	Raw        rest.Interface    // lists the pods of workloads that are not ready
	Rules      *conditionrules.Evaluator
	Feedback   *feedback.Reader
	Outbox     *outbox.Outbox
	Budgets    *budget.Accounts // of expressions
	// Sources tells which sources answered a resync.
	Sources Sources

	// Workers is the number of works reconciled at a time.
	Workers int
	// SyncInterval is the time between reads of objects that are not watched.
	SyncInterval time.Duration
	// RecordDelay is how long it may take, while other works wait, until what was applied for a new one is recorded. 0: none waits.
	RecordDelay time.Duration
	// EvictionGrace is how long an AppliedManifestWork outlives its work.
	EvictionGrace time.Duration
	// WithoutReadiness ignores [workv1.ReportReadinessAnnotationKey].
	WithoutReadiness bool
	// Tracer makes the spans of Changes, the specs received that continue a trace; nil makes none.
	Tracer  *tracing.Tracer
	Changes *tracing.Changes[inbox.Key]
	// Events gets an event about each object that is repaired, as far as the limit of eventBurst and
	// eventsPerSecond allows. Default: none.
	Events record.EventRecorder
	// Audit gets a record for each object that is applied or removed. Default: none.
	Audit *audit.Log
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Sources tells which sources answered a resync request. Only then does an AppliedManifestWork
// without a work belong to no work.
type Sources interface {
	// Answered reports whether source has answered; any source if it is empty.
	Answered(source wire.SourceID) bool
	// AskAgain asks a source that has not answered if it is time to, and returns when to call
	// AskAgain next.
	AskAgain(source wire.SourceID) time.Duration
	// Ask asks a source for its specs.
	Ask(source wire.SourceID)
}

func (c *Config) validate() error {
	errs := []error{required.Fields(c, "Cluster", "Owner", "BrokerHost", "Table", "Inbox", "RESTMapper", "Applied", "Executors",
		"Applier", "Objects", "Named", "Client", "Raw", "Rules", "Feedback", "Outbox", "Budgets", "Sources")}
	if c.Workers < 1 || c.SyncInterval <= 0 || c.EvictionGrace <= 0 {
		errs = append(errs, fmt.Errorf("Workers %d, SyncInterval %v and EvictionGrace %v must be positive",
			c.Workers, c.SyncInterval, c.EvictionGrace))
	}
	return errors.Join(errs...)
}

// Reconciler makes the cluster hold what the works of its table declare, and reports what the
// cluster holds. See [New].
type Reconciler struct {
	Config
	naming  naming
	clock   *walltime.Clock // of the times that AppliedManifestWorks have
	metrics *metrics
	pods    *pods.Reader

	eventLimit flowcontrol.RateLimiter // of all objects together
}

const (
	// eventBurst and eventsPerSecond bound the events of all objects together, such as when a
	// namespace is deleted. What is left out is in the log and in the metrics.
	eventBurst      = 100
	eventsPerSecond = 1
	// maxEvent is the maximum length in bytes of an event's message in the Kubernetes API.
	maxEvent = 1024
)

// New returns a Reconciler that does nothing until [Reconciler.Recover] and [Reconciler.Run].
func New(config Config) (*Reconciler, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("reconcile: %w", err)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	return &Reconciler{
		Config:  config,
		naming:  naming{brokerHost: config.BrokerHost, topics: config.Topics},
		clock:   walltime.New(),
		metrics: newMetrics(config.Registerer, config.Table),
		pods:    pods.NewReader(),

		eventLimit: flowcontrol.NewTokenBucketRateLimiter(eventsPerSecond, eventBurst),
	}, nil
}

// watch replaces what the watches report to e. The worker that holds e calls it.
func (r *Reconciler) watch(e *entry, next interest) {
	r.Objects.Follow(e.name, e.interest.objects, next.objects)
	r.Named.Follow(e.name, e.interest.named, next.named)
	r.followAccount(e, next.account)
	e.interest = next
}

// followAccount replaces the account whose rights matter to e. The worker that holds e calls it.
func (r *Reconciler) followAccount(e *entry, account *executor.Account) {
	r.Executors.Follow(e.name, e.interest.account, account)
	e.interest.account = account
}

// forget drops everything that is known of a name which no work has.
func (r *Reconciler) forget(e *entry) {
	r.dropResults(&e.history)
	e.history = history{}
	r.Table.await(e, nil)
	r.Table.depend(e, nil)
	r.Table.setStanding(e, standing{})
	r.watch(e, interest{})
}
