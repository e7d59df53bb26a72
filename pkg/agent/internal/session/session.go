// Package session is the agent's side of the connection to the broker. It receives specs into the
// inbox, asks sources for the specs that the agent has missed, has the inbox decide on works that
// their source does not know, and tells sources whether the agent is present.
//
//	s, err := session.New(session.Config{...})
//	go s.Run(ctx)
//	go transport.Run(ctx, s.Handler())
package session

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"

	"github.com/workwire/workwire/pkg/agent/internal/inbox"
	"github.com/workwire/workwire/pkg/agent/internal/outbox"
	"github.com/workwire/workwire/pkg/agent/internal/questions"
	"github.com/workwire/workwire/pkg/agent/internal/trust"
	"github.com/workwire/workwire/pkg/runtime/fairqueue"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/tracing"
	"github.com/workwire/workwire/pkg/security/audit"
	"github.com/workwire/workwire/pkg/security/sealing"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// Config configures [New]. Fields without a default are required.
type Config struct {
	// Cluster that the agent serves.
	Cluster wire.ClusterName
	// ClientID of the agent at the broker, the source of its events.
	ClientID string
	// Topics to subscribe and publish to.
	Topics wire.AgentTopics
	// Transport to the broker.
	Transport transport.Transport
	// Inbox that holds the specs received.
	Inbox *inbox.Inbox
	// Outbox that answers sources.
	Outbox *outbox.Outbox
	// Trust decides which events are believed; nil believes all.
	Trust *trust.Gate
	// Sign signs each question and digest, as [signing.Signer.SignStatus] does. Default: none is signed.
	Sign func(*cloudevents.Event) error
	// Unseal opens sealed specs; nil opens none.
	Unseal *sealing.Unsealer
	// Superseded is called with a work whose name another work took. It must not block.
	Superseded func(inbox.Key)
	// DryRun is called with what a source asks to try, or with why that is refused and not asked. It must
	// not block.
	DryRun func(question *wire.DryRun, refused error)
	// SourceAnswered is called when a source answers a resync request for the first time. It must
	// not block.
	SourceAnswered func()
	// Quotas are what each source may cost.
	Quotas *quota.Quotas[wire.SourceID]
	// RetryInterval is the first wait before a silent source is asked again. The wait doubles.
	RetryInterval time.Duration
	// DigestInterval is the time between digests; 0 for none.
	DigestInterval time.Duration
	// Tracer makes the spans of specs that continue a trace; nil makes none.
	Tracer *tracing.Tracer
	// Changes are told of these specs; nil with Tracer.
	Changes *tracing.Changes[inbox.Key]
	// Audit gets a record for each message with a spec. Default: none.
	Audit *audit.Log
	// Registerer for metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger, default slog.Default().
	Logger *slog.Logger
}

// Session is the agent's side of the connection. What it asks of sources is decided by [questions.Questions] and done by one
// goroutine; another one handles what is received. It is safe for concurrent use.
type Session struct {
	config    Config
	line      *fairqueue.Line[transport.Message, wire.SourceID] // of messages that were received
	questions struct {
		sync.Mutex
		*questions.Questions
	}
	changed   chan struct{} // holds a token when something may be due
	presence  *presence
	connected atomic.Bool
	asked     atomic.Bool // a connection was made before

	received *prometheus.CounterVec
	requests prometheus.Counter
	digests  prometheus.Counter
	partial  prometheus.Counter
}

// maxReceived is how many messages wait until those before them are handled. The transport waits for the others.
const maxReceived = 1_000

// New returns a Session that does nothing until [Session.Run].
func New(config Config) (*Session, error) {
	if err := required.Fields(config, "Cluster", "ClientID", "Transport", "Inbox", "Outbox", "Superseded", "DryRun", "SourceAnswered", "Quotas", "RetryInterval"); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	config.Logger = cmp.Or(config.Logger, slog.Default())
	presence, err := newPresence(wire.Presence{Agent: config.ClientID, Cluster: config.Cluster}, config.Topics, config.Transport, config.Logger)
	if err != nil {
		return nil, err
	}
	factory := promauto.With(config.Registerer)
	s := &Session{
		config: config,
		line: fairqueue.NewLine(maxReceived, func(m transport.Message) wire.SourceID {
			source, _, _ := wire.TopicSender(m.Topic)
			return source
		}),
		changed:  make(chan struct{}, 1),
		presence: presence,
		received: factory.NewCounterVec(prometheus.CounterOpts{
			Name: "workwire_agent_specs_received_total", Help: "Messages received, by their effect on the inbox; unknown_base: a spec delta that could not be used, the spec was requested.",
		}, []string{"verdict"}),
		requests: factory.NewCounter(prometheus.CounterOpts{
			Name: "workwire_agent_spec_resyncs_total", Help: "Spec resync requests sent.",
		}),
		digests: factory.NewCounter(prometheus.CounterOpts{Name: "workwire_agent_digests_total", Help: "Digests sent."}),
		partial: factory.NewCounter(prometheus.CounterOpts{
			Name: "workwire_agent_differing_works_total", Help: "Works that were requested because a digest differed.",
		}),
	}
	id := uuid.NewString()
	s.questions.Questions = questions.New(questions.Config{
		Prefix: id[:len(id)-questions.ProbeDigits], Retry: config.RetryInterval, Digest: config.DigestInterval, Random: rand.Float64,
	}, time.Now())
	s.received.WithLabelValues(unknownBase) // increase() needs a zero
	return s, nil
}

// Connected reports whether the agent is connected to the broker.
func (s *Session) Connected() bool { return s.connected.Load() }

// Run publishes presence and resync requests, and has works decided on that their source does not
// know, until ctx ends. It must be called once.
func (s *Session) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.presence.run(ctx) })
	group.Go(func() error { return s.runQuestions(ctx) })
	group.Go(func() error { return s.runUnseal(ctx) })
	group.Go(func() error {
		s.line.Run(ctx, s.receive)
		return nil
	})
	return group.Wait()
}

// Leave tells sources that the agent is about to disconnect. It returns within a second.
func (s *Session) Leave(ctx context.Context) { s.presence.leave(ctx) }

// Handler returns the handler that the transport is to call.
func (s *Session) Handler() transport.Handler {
	return transport.Handler{
		Subscriptions: s.config.Topics.Subscriptions(),
		Will:          s.presence.will(),
		Connected: func(_ context.Context, c transport.Connection) {
			s.connected.Store(true)
			s.config.Outbox.Connected(s.presence.connected())
			s.presence.announce()
			sources := s.toAsk(c)
			s.asking(func(q *questions.Questions, now time.Time) { q.Connected(sources, now) })
		},
		Received: func(_ context.Context, m transport.Message) { s.line.Add(m) },
		Lost: func(error) {
			s.connected.Store(false)
			s.asking(func(q *questions.Questions, _ time.Time) { q.Lost() })
			s.config.Outbox.Lost()
		},
	}
}
