package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// decided reports what happened to a message of a kind; status is the one in it, if any.
func (e *Engine) decided(m transport.Message, from sender, kind string, v verdict, status *wire.Status) {
	e.report(Received{Topic: m.Topic, Cluster: from.cluster, Kind: kind, Status: status, verdict: v})
}

// accepts reports whether a message of a kind names this source and the cluster of its topic.
func (e *Engine) accepts(m transport.Message, from sender, kind string, source wire.SourceID, cluster wire.ClusterName) bool {
	v := from.check(e.config.Source, source, cluster)
	e.decided(m, from, kind, v, nil)
	if v == wrongCluster {
		e.log.Warn("message dropped: it names another cluster than its topic", "message", kind, "topic", m.Topic, "cluster", from.cluster, "named", cluster)
	}
	return v == accepted
}

// receive handles a message and acknowledges it. Its content is in the state or in a queue then.
func (e *Engine) receive(_ context.Context, m transport.Message) {
	defer m.Ack()
	if m.Topic == e.instances.Topic() {
		e.receiveInstance(m)
		return
	}
	source, cluster, _ := wire.TopicSender(m.Topic)
	from := sender{source: source, cluster: cluster}
	if e.stateOf(cluster) == ClusterElsewhere {
		e.decided(m, from, "unknown", notServed, nil)
		return
	}
	if !e.affords(m, from, time.Now()) {
		return
	}
	var message wire.Message
	err := m.Err
	if err == nil {
		message, err = wire.Decode(m.Event)
	}
	if err == nil && !e.believes(m, from, message) {
		return
	}
	e.step(heard{from.cluster})
	switch {
	case errors.Is(err, wire.ErrUnknownDataType):
		e.decided(m, from, "unknown", foreign, nil)
		return
	case err != nil:
		e.decided(m, from, "unknown", undecodable, nil)
		e.log.Warn("message dropped: decoding failed", "topic", m.Topic, "cluster", from.cluster, "error", err)
		return
	}
	e.handle(m, from, message)
}

// handle handles what m says.
func (e *Engine) handle(m transport.Message, from sender, message wire.Message) {
	switch message := message.(type) {
	case *wire.Status:
		e.handleStatus(m, from, message, false)
	case *wire.StatusDelta:
		if status, ok := e.resolveDelta(from, message); ok {
			e.handleStatus(m, from, status, true)
		} else {
			e.decided(m, from, "status", unknownBase, &message.Of)
		}
	case *wire.Presence:
		if e.accepts(m, from, "presence", message.Source, message.Cluster) {
			e.step(said{message.Cluster, message})
		}
	case *wire.Digest, *wire.SpecResync:
		if kind, source, cluster := questionIn(message); e.accepts(m, from, kind, source, cluster) {
			e.step(said{cluster, message})
		}
	default:
		e.decided(m, from, "unknown", foreign, nil)
	}
}

// statusIn returns the status in a message, without its content if that is a delta; nil in others.
func statusIn(message wire.Message) *wire.Status {
	switch message := message.(type) {
	case *wire.Status:
		return message
	case *wire.StatusDelta:
		return &message.Of
	default:
		return nil
	}
}

// handleStatus handles a status, which was sent as a delta or whole.
func (e *Engine) handleStatus(m transport.Message, from sender, status *wire.Status, delta bool) {
	e.report(ClusterHeard{Cluster: from.cluster})
	span, change := e.traceStatus(m, status)
	v := e.receiveStatus(from, status, receivedAs{size: len(m.Event.Data()), delta: delta})
	e.endTraceStatus(span, change, status, v)
	e.decided(m, from, "status", v, status)
}

// receivedAs is the form in which a status has arrived.
type receivedAs struct {
	size  int // of the data
	delta bool
}

// receiveInstance handles a message on the topic where the programs of this source find each other.
func (e *Engine) receiveInstance(m transport.Message) {
	var message wire.Message
	err := m.Err
	if err == nil {
		message, err = wire.Decode(m.Event)
	}
	other, ok := message.(*wire.Instance)
	if err != nil || !ok {
		e.decided(m, sender{}, instance, undecodable, nil)
		return
	}
	e.decided(m, sender{}, instance, accepted, nil)
	e.instances.Received(other, time.Now())
}
