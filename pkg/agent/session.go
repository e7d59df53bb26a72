package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// handler is the agent's end of the connection.
func (a *Agent) handler() transport.Handler {
	return transport.Handler{
		Subscriptions: a.topics.Subscriptions(),
		Will:          a.presence.will(),
		Connected: func(ctx context.Context, c transport.Connection) {
			a.connected.Store(true)
			a.outbox.Connected()
			a.presence.announce()
			a.resync(ctx, c)
		},
		Received: a.received,
		Lost: func(error) {
			a.connected.Store(false)
			a.outbox.Lost()
		},
	}
}

// resync asks for the specs that the agent is missing (docs/protocol.md, Spec
// resync).
func (a *Agent) resync(ctx context.Context, c transport.Connection) {
	if source, one := a.topics.Source(); one {
		a.ask(ctx, source)
		return
	}
	for _, source := range a.inbox.Sources() {
		a.ask(ctx, source)
	}
	// Without a session the broker has kept nothing. Sources that the agent knows
	// were asked; one that it does not know may have sent something all the same.
	topic, ok := a.topics.Broadcast()
	if ok && !c.Resumed {
		err := a.request(ctx, topic, &wire.SpecResync{Agent: a.config.ClientID, Cluster: a.config.Cluster, Versions: a.answers.ask("")})
		a.logUnasked(ctx, "all", topic, err)
	}
}

// ask asks one source for what the agent does not hold of it.
func (a *Agent) ask(ctx context.Context, source wire.SourceID) {
	topic, err := a.topics.Events(source)
	if err != nil {
		a.config.Logger.Error("a source can not be asked for its specs", "source", source, "error", err)
		return
	}
	// Where the topics name one source, all that listen to the broadcast are that
	// source, and OCM's expect it there.
	if broadcast, ok := a.topics.Broadcast(); ok {
		if _, one := a.topics.Source(); one {
			topic = broadcast
		}
	}
	probe := a.answers.ask(source)
	request := &wire.SpecResync{
		Agent: a.config.ClientID, Cluster: a.config.Cluster, Source: source, Versions: append(a.inbox.Versions(source), probe...),
	}
	err = a.request(ctx, topic, request)
	var large *transport.TooLargeError
	if errors.As(err, &large) {
		// A list that leaves works out would make the source send those, and an
		// empty one makes it send all: the same, and it fits.
		request.Versions = probe
		err = a.request(ctx, topic, request)
	}
	a.logUnasked(ctx, source, topic, err)
}

// logUnasked tells that a source was not asked. When the connection is to blame,
// the next one asks again.
func (a *Agent) logUnasked(ctx context.Context, source wire.SourceID, topic string, err error) {
	if err == nil || ctx.Err() != nil || errors.Is(err, transport.ErrNotConnected) {
		return
	}
	a.config.Logger.Error("a source was not asked for its specs; changes made while the agent was away may be missing",
		"source", source, "topic", topic, "error", err)
}

func (a *Agent) request(ctx context.Context, topic string, request *wire.SpecResync) error {
	event, err := wire.Encode(request, time.Now())
	if err != nil {
		return err
	}
	a.metrics.resyncs.Inc()
	return a.config.Transport.Publish(ctx, topic, event)
}

// received takes one message in. What it says is held when it is acknowledged.
func (a *Agent) received(_ context.Context, m transport.Message) {
	source, cluster, shaped := wire.TopicSender(m.Topic)
	logger := a.config.Logger.With("topic", m.Topic)
	switch {
	case m.Err != nil:
		a.ignore(logger, m, "not a CloudEvent", m.Err)
		return
	case !shaped:
		a.ignore(logger, m, "on a topic of no known shape", nil)
		return
	case cluster != "" && cluster != a.config.Cluster:
		a.ignore(logger, m, "for another cluster", nil)
		return
	}
	message, err := wire.Decode(m.Event)
	var failure *wire.DecodeError
	switch {
	case errors.Is(err, wire.ErrUnknownDataType):
		m.Ack()
		return
	case errors.As(err, &failure):
		a.refused(logger, m, source, failure)
		return
	case err != nil:
		a.ignore(logger, m, "undecodable", err)
		return
	}
	switch message := message.(type) {
	case *wire.Spec:
		if message.Source != source || message.Cluster != a.config.Cluster {
			a.ignore(workLogger(logger, message), m, "its source or cluster is not that of its topic", nil)
			return
		}
		if a.answers.take(message) {
			a.answered()
		}
		change := a.inbox.Put(message, held(m))
		a.metrics.received.WithLabelValues(change.Verdict.String()).Inc()
		workLogger(logger, message).Debug("received a spec", "generation", message.Generation, "action", message.Action, "verdict", change.Verdict.String())
		a.superseded(change.Superseded)
		if change.Verdict == inbox.Unknown {
			a.outbox.Answer(message)
		}
	case *wire.StatusResync:
		if message.Source == source && (message.Cluster == "" || message.Cluster == a.config.Cluster) {
			a.outbox.Resync(message)
			a.presence.announce() // the source may have been away when it was told
		}
		m.Ack()
	default:
		a.ignore(logger, m, "not for an agent", nil)
	}
}

// refused takes in a spec that could not be decoded: its work reports that.
func (a *Agent) refused(logger *slog.Logger, m transport.Message, source wire.SourceID, failure *wire.DecodeError) {
	if spec := failure.Spec; spec != nil && (spec.Source != source || spec.Cluster != a.config.Cluster) {
		a.ignore(workLogger(logger, spec), m, "its source or cluster is not that of its topic", failure)
		return
	}
	change := a.inbox.Refuse(failure, held(m))
	a.metrics.received.WithLabelValues(change.Verdict.String()).Inc()
	if failure.Spec != nil {
		logger = workLogger(logger, failure.Spec)
	}
	logger.Warn("refused a spec", "error", failure.Err, "verdict", change.Verdict.String())
}

// ignore drops a message that nobody can be answered for.
func (a *Agent) ignore(logger *slog.Logger, m transport.Message, why string, err error) {
	a.metrics.received.WithLabelValues("ignored").Inc()
	logger.Warn("ignored a message", "reason", why, "error", err)
	m.Ack()
}

// held acknowledges m once what it says is held.
func held(m transport.Message) func(error) {
	return func(err error) {
		if err == nil {
			m.Ack()
		}
	}
}

// superseded ends a work whose name went to another one.
func (a *Agent) superseded(key *inbox.Key) {
	if key == nil {
		return
	}
	a.outbox.Forget(*key)
	if name, ok := a.holders.name(*key); ok {
		a.holders.drop(name, *key)
	}
}

// specChanged is called for each change of a work in the inbox.
func (a *Agent) specChanged(key inbox.Key) {
	if entry, ok := a.inbox.Get(key); ok {
		name := a.recordName(key.Source, entry.Meta.Name)
		a.holders.add(name, key)
		a.retryNow(name)
	} else if name, ok := a.holders.name(key); ok {
		a.holders.drop(name, key)
		a.retryNow(name)
	}
}

// reported is called when the source has been told that a work is gone.
func (a *Agent) reported(key inbox.Key) {
	if again := a.inbox.Forget(key); again {
		a.asks.Add(key.Source)
	}
}

// runAsks asks sources for works whose specs came while they were being deleted,
// until ctx ends. Without a connection there is no need: the next one asks.
func (a *Agent) runAsks(ctx context.Context) {
	stop := context.AfterFunc(ctx, a.asks.ShutDown)
	defer stop()
	for {
		source, stopped := a.asks.Get()
		if stopped {
			return
		}
		a.ask(ctx, source)
		a.asks.Done(source)
	}
}

// retryNow queues name whatever it is waiting for.
func (a *Agent) retryNow(name string) {
	a.queue.Forget(name)
	a.queue.Add(name)
}

func workLogger(logger *slog.Logger, spec *wire.Spec) *slog.Logger {
	return logger.With("work", spec.Meta.Name, "uid", spec.UID, "source", spec.Source)
}
