// Package agent makes one cluster hold what the works of its sources declare, and reports what the
// cluster holds. It needs the broker only to receive changes and to report: without a connection it
// maintains the works that it has.
//
//	a, err := agent.New(agent.Config{Cluster: "cluster1", ClientID: "cluster1-agent", BrokerHost: host,
//		Topics: topics, Transport: transport, Kube: restConfig})
//	...
//	err = a.Run(ctx)
//
// The flow is one line:
//
//	transport → session → inbox → reconcile → outbox → session → transport
//
// Package session receives specs into the inbox. Whatever concerns a work enqueues its name in the
// table of package reconcile, whose workers take it through the steps, a package each: they record in
// applied what they are about to apply, apply it by strategy, observe, and compute the status by feedback,
// conditionrules and condition. This package only wires the steps together, and starts and stops them.
package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/workwire/workwire/pkg/agent/internal/about"
	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/conditionrules"
	"github.com/workwire/workwire/pkg/agent/internal/dryrun"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/feedback"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/object"
	"github.com/workwire/workwire/pkg/agent/internal/observe"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/reconcile"
	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/pkg/agent/internal/session"
	"github.com/workwire/workwire/pkg/agent/internal/store"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/apply"
	"github.com/workwire/workwire/pkg/agent/internal/trust"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned/typed/work/v1"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/statestore"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// Agent serves one cluster. See [New].
type Agent struct {
	config     Config
	state      *statestore.Store // nil without a state directory
	watches    []runner          // feed the table of reconciler
	inbox      *inbox.Inbox
	outbox     *outbox.Outbox
	session    *session.Session
	quotas     *quota.Quotas[wire.SourceID] // what each source may cost
	applied    *applied.Client
	reconciler *reconcile.Reconciler
	dryRuns    *dryrun.Runner
	ready      atomic.Bool // the reconciler runs

	tracer  *tracing.Tracer             // nil: none
	changes *tracing.Changes[inbox.Key] // received and not applied
}

// New returns an Agent that does nothing until Run. It opens the state directory, if there is one,
// and fails if that or the configuration is unusable.
func New(config Config) (*Agent, error) {
	if err := config.complete(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	topics, err := config.Topics.ForAgent(config.Cluster)
	if err != nil {
		return nil, err
	}
	tracer := tracing.New(config.TracerProvider)
	clients, err := newClients(config.Kube, tracer)
	if err != nil {
		return nil, fmt.Errorf("configure the clients of the cluster: %w", err)
	}
	a := &Agent{config: config, tracer: tracer, changes: tracing.NewChanges[inbox.Key](tracer),
		quotas: quota.New[wire.SourceID](quota.Config{Rates: quota.Sources(), Subsystem: "agent"})}
	if config.StateDir != "" {
		if a.state, err = store.Open(store.Config{Dir: config.StateDir, Commit: config.StateCommit, Logger: config.Logger}); err != nil {
			return nil, err
		}
	}
	if err = a.newSession(topics); err == nil {
		err = a.newReconciler(topics, clients)
	}
	if err != nil {
		return nil, errors.Join(err, a.state.Close())
	}
	registerMetrics(config.Registerer, a.inbox, a.outbox, a.quotas, a.state)
	return a, nil
}

// clients are the clients of the cluster. They share connections; each has a rate limit of its own.
type clients struct {
	dynamic dynamic.Interface
	raw     rest.Interface
	works   workclient.WorkV1Interface
}

// requestTimeout bounds each request to the API server but watches. The API server itself gives up
// after a minute, and on a webhook after 30 seconds at the most.
const requestTimeout = 70 * time.Second

func newClients(config *rest.Config, tracer *tracing.Tracer) (c clients, err error) {
	timed := kube.WithTimeout(config, requestTimeout)
	timed.WarningHandler = rest.NoWarnings{} // the statuses of works have the warnings
	kube.NoticeRestore(timed)
	kube.TraceRequests(timed, tracer)
	httpClient, err := rest.HTTPClientFor(timed)
	if err != nil {
		return c, err
	}
	config = dynamic.ConfigFor(timed)
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return c, err
	}
	config.GroupVersion = &schema.GroupVersion{}
	if c.raw, err = rest.UnversionedRESTClientForConfigAndClient(config, httpClient); err != nil {
		return c, err
	}
	c.works, err = workclient.NewForConfigAndClient(timed, httpClient)
	return c, err
}

// newSession makes the steps that are connected to the broker. They call the reconciler, which New
// makes next and Run starts first.
func (a *Agent) newSession(topics wire.AgentTopics) (err error) {
	config := &a.config
	a.inbox = inbox.New(inbox.Config{
		Store: a.state, Unseal: config.Unseal, MaxSource: config.MaxSourceSpecs, Logger: config.Logger,
		Changed: func(key inbox.Key) { a.reconciler.SpecChanged(key) },
	})
	a.outbox, err = outbox.New(outbox.Config{
		Agent: config.ClientID, Publisher: config.Transport, Topic: topics.Events, Sign: config.Sign, Store: a.state, Now: config.Now, Logger: config.Logger,
		Tracer: a.tracer, MaxUplink: config.MaxUplink,
		Done: func(key inbox.Key) {
			if again := a.inbox.Forget(key); again {
				a.session.Ask(key.Source)
			}
		},
	})
	if err != nil {
		return err
	}
	var gate *trust.Gate // nil believes all
	if config.TrustedKeys != nil {
		if gate, err = trust.New(trust.Config{Keys: config.TrustedKeys, MaxAge: config.SignatureMaxAge, Registerer: config.Registerer}); err != nil {
			return err
		}
	}
	a.session, err = session.New(session.Config{
		Cluster: config.Cluster, ClientID: config.ClientID, Topics: topics, Transport: config.Transport, Trust: gate, Sign: config.Sign, Unseal: config.Unseal,
		Inbox: a.inbox, Outbox: a.outbox, Quotas: a.quotas, RetryInterval: config.SyncInterval, DigestInterval: config.DigestInterval,
		Superseded:     func(key inbox.Key) { a.reconciler.Superseded(key) },
		SourceAnswered: func() { a.reconciler.SourceAnswered() },
		DryRun:         func(question *wire.DryRun, refused error) { a.dryRuns.Ask(question, refused) },
		Tracer:         a.tracer, Changes: a.changes,
		Audit: config.Audit, Registerer: config.Registerer, Logger: config.Logger,
	})
	return err
}

// newReconciler makes the steps that are connected to the cluster.
func (a *Agent) newReconciler(topics wire.AgentTopics, clients clients) error {
	config := &a.config
	hash := object.AgentHash(config.AgentID)
	table := reconcile.NewTable()
	budgets := budget.New(a.quotas)
	mapper, err := restmapper.New(restmapper.Config{Client: clients.raw, Changed: table.KindChanged, Logger: config.Logger})
	if err != nil {
		return err
	}
	named := observe.New(observe.Config{
		Client: clients.dynamic, Max: config.MaxFeedbackWatch, Logger: config.Logger,
		Changed: func(name string, _ object.Ref, _ string) { table.Enqueue(name) },
	})
	owner := applied.Owner{AgentID: config.AgentID, Cluster: config.Cluster, TakesOver: config.TakesOver}
	a.applied = applied.NewClient(applied.Config{
		Client: clients.works, Owner: owner, Changed: table.AppliedManifestWorkChanged, Logger: config.Logger,
	})
	objects := observe.New(observe.Config{
		Client: clients.dynamic, Selector: object.AgentLabel + "=" + hash, Max: math.MaxInt,
		Changed: table.ObjectChanged, Relisted: a.applied.Recheck, Logger: config.Logger,
	})
	executors, err := executor.New(executor.Config[string]{
		Client: clients.raw, InMemory: config.ExecutorCaches, Changed: table.Enqueue, Logger: config.Logger,
	})
	if err != nil {
		return err
	}
	evaluator, err := conditionrules.New()
	if err != nil {
		return err
	}
	recorder := newEvents(clients.dynamic)
	a.watches = []runner{mapper.Run, a.applied.Run, objects.Run, named.Run, executors.Run, recorder.Run, a.describe(clients.raw),
		func(ctx context.Context) error { return config.Policy.Run(ctx, table.PolicyChanged) }}
	applier, err := apply.New(apply.Config{Client: clients.raw, Cache: objects, AgentHash: hash, NotServed: mapper.Forget})
	if err != nil {
		return err
	}
	a.dryRuns, err = dryrun.New(dryrun.Config{
		Agent: config.ClientID, Cluster: config.Cluster, Topic: topics.Events, Transport: config.Transport, Sign: config.Sign, Client: clients.raw, AgentHash: hash,
		AppliedName: reconcile.AppliedName(config.BrokerHost, topics),
		Inbox:       a.inbox, RESTMapper: mapper, Applied: a.applied, Executors: executors, Budgets: budgets, Policy: config.Policy, Audit: config.Audit, Registerer: config.Registerer, Logger: config.Logger,
		Complete: a.complete,
	})
	if err != nil {
		return err
	}
	a.reconciler, err = reconcile.New(reconcile.Config{
		Cluster: config.Cluster, Owner: owner, BrokerHost: config.BrokerHost, Topics: topics,
		Table: table, Inbox: a.inbox, RESTMapper: mapper, Applied: a.applied, Executors: executors, Policy: config.Policy, Applier: applier,
		Objects: objects, Named: named, Client: clients.dynamic, Raw: clients.raw, Rules: evaluator,
		Feedback: feedback.New(feedback.Config{RawJSON: config.RawFeedback, MaxRawLength: config.MaxJSONRawLength}),
		Outbox:   a.outbox, Budgets: budgets, Sources: a.session, Tracer: a.tracer, Changes: a.changes,
		Workers: config.Workers, SyncInterval: config.SyncInterval, RecordDelay: config.RecordDelay, EvictionGrace: config.EvictionGrace, WithoutReadiness: config.WithoutReadiness,
		Events: recorder, Audit: config.Audit, Registerer: config.Registerer, Logger: config.Logger,
	})
	return err
}

// describe returns what tells sources what the cluster says of itself.
func (a *Agent) describe(client rest.Interface) runner {
	if a.config.AboutInterval == 0 {
		return func(context.Context) error { return nil }
	}
	return func(ctx context.Context) error {
		return about.Run(ctx, about.Config{Client: client, Interval: a.config.AboutInterval, Changed: a.session.Describe, Logger: a.config.Logger})
	}
}

// complete returns what reports, by the last status of a work, which of its manifests are complete.
func (a *Agent) complete(key inbox.Key) func(workv1.ManifestResourceMeta) bool {
	last, _ := a.outbox.Last(key)
	return condition.WasComplete(&last.Status)
}

// Ready returns nil if the agent reconciles works and can write its state directory, else why not.
func (a *Agent) Ready() error {
	if !a.ready.Load() {
		const unknown = "the state of the cluster is not known yet"
		if err := a.applied.Err(); err != nil {
			return fmt.Errorf(unknown+": %w", err)
		}
		return errors.New(unknown)
	}
	if err := a.state.Err(); err != nil {
		return fmt.Errorf("%w; the agent works in memory only until it can be written: make room on the disk, or make it writable", err)
	}
	return nil
}

// Connected returns nil if the agent is connected to the broker, else an error.
func (a *Agent) Connected() error {
	if !a.session.Connected() {
		return fmt.Errorf("no connection to the broker %s", a.config.BrokerHost)
	}
	return nil
}
