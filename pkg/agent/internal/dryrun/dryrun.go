package dryrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/workwire/workwire/pkg/agent/internal/applied"
	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/executor"
	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/restmapper"
	"github.com/workwire/workwire/pkg/agent/internal/slots"
	"github.com/workwire/workwire/pkg/agent/policy"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// maxTime bounds an examination.
	maxTime = time.Minute
	// maxAnswer bounds the objects of an answer in bytes of JSON: brokers limit packets, some to 256 KiB.
	maxAnswer = 200_000
)

// connectionRetry is when an answer is published again for which there was no connection.
const connectionRetry = 500 * time.Millisecond

// errBusy is the failure of a question that found too many others of its source waiting.
var errBusy = errors.New("the agent is busy with other dry runs: try again")

// Config configures [New]. Fields without a default are required.
type Config struct {
	// Agent is its client id, the source of its events.
	Agent string
	// Cluster that the agent serves.
	Cluster wire.ClusterName
	// Topic is where what concerns a source is published.
	Topic func(wire.SourceID) (string, error)
	// Transport to the broker.
	Transport transport.Transport
	// Sign signs each answer, as [signing.Signer.SignStatus] does. Default: none is signed.
	Sign func(*cloudevents.Event) error
	// Client for the cluster, made from a configuration that dynamic.ConfigFor returned.
	Client rest.Interface
	// AgentHash is the value of the label object.AgentLabel on applied objects.
	AgentHash string
	// AppliedName returns the name of the AppliedManifestWork of a work.
	AppliedName func(source wire.SourceID, work string) string

	Inbox      *inbox.Inbox
	RESTMapper *restmapper.Mapper
	Applied    *applied.Client
	Executors  *executor.Executor[string]
	Budgets    *budget.Accounts // of expressions
	Policy     *policy.File     // of the cluster's owner; nil: none

	// Complete returns what reports, by the status of a work, which of its manifests are complete.
	Complete func(inbox.Key) func(workv1.ManifestResourceMeta) bool
	// Audit gets a record for each question, and for each object of an answer. Default: none.
	Audit *audit.Log
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Runner examines questions: of each source one at a time, and one at a time of all, but for those that take
// longer than [slots.SlowAfter]. It is safe for concurrent use.
type Runner struct {
	config  Config
	queue   *queue
	slots   *slots.Pool
	refused chan rejection
	runs    *prometheus.CounterVec
}

// rejection is a question that is not examined, and why.
type rejection struct {
	question *wire.DryRun
	reason   error
}

// New returns a Runner that does nothing until [Runner.Run].
func New(c Config) (*Runner, error) {
	if err := required.Fields(c, "Agent", "Cluster", "Topic", "Transport", "Client", "AgentHash", "AppliedName", "Inbox", "RESTMapper", "Applied", "Executors", "Budgets", "Complete"); err != nil {
		return nil, fmt.Errorf("dry runs: %w", err)
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Runner{
		config: c, queue: newQueue(), slots: slots.New(1), refused: make(chan rejection, maxWaiting),
		runs: promauto.With(c.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_dry_runs_total", Help: "Dry runs that sources have asked for, by result: answered, failed, busy, expired or unsealed.",
		}, []string{"result"}),
	}, nil
}

// Ask has a question answered. It returns at once; a question that finds too many others of its source waiting is
// told so, or dropped, as is one with a reason to refuse it.
func (r *Runner) Ask(question *wire.DryRun, refused error) {
	result, reason := "unsealed", ""
	if refused == nil {
		if r.queue.put(question) {
			return
		}
		refused, result = errBusy, "busy"
	}
	if closed, ok := errors.AsType[*sealing.OpenError](refused); ok {
		reason = string(closed.Reason)
	}
	r.record(question, result, reason)
	select {
	case r.refused <- rejection{question, refused}:
	default: // its source waits until its time is over
	}
}

// Run answers questions until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				r.queue.turns.ShutDown()
				return nil
			case refused := <-r.refused:
				r.publish(ctx, refused.question, &wire.DryRunAnswer{Failure: condition.Shorten(refused.reason.Error(), maxMessage)})
			}
		}
	})
	group.Go(func() error {
		for {
			question, done := r.queue.next()
			if question == nil {
				return nil
			}
			release, err := r.slots.Acquire(ctx)
			if err != nil {
				return nil
			}
			group.Go(func() error {
				defer done()
				defer release()
				r.examine(ctx, question)
				return nil
			})
		}
	})
	return group.Wait()
}

// examine answers a question whose turn it is.
func (r *Runner) examine(ctx context.Context, question *wire.DryRun) {
	if !question.Expires.IsZero() && time.Now().After(question.Expires) {
		r.record(question, "expired", "")
		return
	}
	answer := r.answer(ctx, question)
	result := "answered"
	if answer.Failure != "" {
		result = "failed"
	}
	r.record(question, result, "")
	r.publish(ctx, question, answer)
}

func (r *Runner) answer(ctx context.Context, question *wire.DryRun) *wire.DryRunAnswer {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTime, fmt.Errorf("the dry run was ended after %s", maxTime))
	defer cancel()
	start := time.Now()
	b := r.config.Budgets.Begin(question.Source, nil)
	e, err := r.examination(ctx, question, b)
	var objects []wire.DryRunObject
	var names []string
	if err == nil {
		objects, names = e.examine(ctx)
	}
	if _, wait := r.config.Budgets.End(b); wait > 0 {
		err = fmt.Errorf("the expressions of this source's works have cost too much lately: try again in %d s", int(wait.Seconds())+1)
	}
	if err != nil {
		return &wire.DryRunAnswer{Failure: condition.Shorten(err.Error(), maxMessage)}
	}
	if question.Sealed {
		hideValues(objects) // the answer is not sealed
	}
	account := ""
	if e.account != nil {
		account = e.account.String()
	}
	r.recordObjects(question, e.generation(), account, objects, names)
	answer := &wire.DryRunAnswer{Generation: e.generation(), Objects: bounded(objects)}
	r.config.Logger.Info("answered a dry run", "source", question.Source, "work", question.Work, "manifests", len(e.manifests), "took", time.Since(start))
	return answer
}

func (r *Runner) publish(ctx context.Context, question *wire.DryRun, answer *wire.DryRunAnswer) {
	answer.ID, answer.Source = question.ID, question.Source
	answer.Agent, answer.Cluster = r.config.Agent, r.config.Cluster
	if err := r.send(ctx, question, answer); err != nil && ctx.Err() == nil && !errors.Is(err, transport.ErrNotConnected) {
		r.config.Logger.Warn("publishing the answer to a dry run failed", "source", question.Source, "work", question.Work, "error", err)
	}
}

// send sends an answer. The broker delivers a question that waited for the agent before the connection can take an
// answer: without a connection it waits for one, as long as the question is waited for.
func (r *Runner) send(ctx context.Context, question *wire.DryRun, answer *wire.DryRunAnswer) error {
	topic, err := r.config.Topic(question.Source)
	if err != nil {
		return err
	}
	event, err := wire.Encode(answer, time.Now())
	if err == nil && r.config.Sign != nil {
		err = r.config.Sign(&event)
	}
	if err != nil {
		return err
	}
	expires := question.Expires
	if expires.IsZero() {
		expires = time.Now().Add(maxTime)
	}
	wait, cancel := context.WithDeadline(ctx, expires)
	defer cancel()
	for {
		if err := r.config.Transport.Publish(ctx, topic, event); !errors.Is(err, transport.ErrNotConnected) {
			return err
		}
		select {
		case <-time.After(connectionRetry):
		case <-wait.Done():
			return transport.ErrNotConnected
		}
	}
}

// bounded leaves out fields, and then messages and warnings, of objects for which there is no room.
func bounded(objects []wire.DryRunObject) []wire.DryRunObject {
	room := maxAnswer
	for i := range objects {
		o := &objects[i]
		size := sizeOf(o)
		if size > room && len(o.Fields) > 0 {
			o.OmittedFields += len(o.Fields)
			o.Fields = nil
			size = sizeOf(o)
		}
		if size > room {
			o.Message, o.Warnings, o.Managers = condition.Shorten(o.Message, 80), nil, nil
		}
		room -= min(room, size)
	}
	return objects
}

func sizeOf(o *wire.DryRunObject) int {
	size := 100 + len(o.APIVersion) + len(o.Kind) + len(o.Resource) + len(o.Namespace) + len(o.Name) + len(o.Message)
	for _, f := range o.Fields {
		size += 40 + len(f.Path) + 2*(len(f.From)+len(f.To)) // quotes are escaped
	}
	for _, text := range append(o.Warnings, o.Managers...) {
		size += 4 + len(text)
	}
	return size
}
