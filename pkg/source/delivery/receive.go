package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// verdict is what happens to a message; it is a metric label.
type verdict string

const (
	accepted    verdict = "accepted"
	undecodable verdict = "undecodable"
	// foreign: of another data type, or addressed to another source.
	foreign verdict = "foreign"
	// wrongCluster: the sender's topic is not that of the work's cluster.
	wrongCluster verdict = "wrong_cluster"
	unknownWork  verdict = "unknown_work"
	// formerWork: about an earlier work with the same UID.
	formerWork verdict = "former_work"
	// ahead: about a generation that the source does not have yet.
	ahead verdict = "ahead"
	// farAhead: its sequence id is later than any clock.
	farAhead verdict = "far_ahead"
	// outOfOrder: a duplicate, or a later status was received before.
	outOfOrder verdict = "out_of_order"
	// notDeleting: Deleted=True of a work that is not being deleted.
	notDeleting verdict = "not_deleting"
)

// sender identifies who may publish to the topic of a message.
type sender struct {
	source  wire.SourceID // empty on a broadcast topic
	cluster wire.ClusterName
}

// check decides whether source accepts a message from s that names this source (empty for all) and
// this cluster.
func (s sender) check(source, named wire.SourceID, cluster wire.ClusterName) verdict {
	switch {
	case s.source != "" && s.source != source, named != "" && named != source:
		return foreign
	case s.cluster == "" || s.cluster != cluster:
		return wrongCluster
	default:
		return accepted
	}
}

// noteSession records the session that p announces.
func (e *Engine) noteSession(p *wire.Presence) {
	if p.Present {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.state.sessionHeard(p.Cluster, NewSession(p.Session))
	}
}

// accepts counts a message of a kind that names a source and a cluster, and reports whether they are this
// source and the cluster of its topic. Another cluster is logged and audited.
func (e *Engine) accepts(m transport.Message, from sender, kind string, source wire.SourceID, cluster wire.ClusterName) bool {
	v := from.check(e.config.Source, source, cluster)
	e.metrics.countReceived(kind, v)
	if v == wrongCluster {
		e.auditReceived(m, from, v, nil)
		e.log.Warn("message dropped: it names another cluster than its topic", "message", kind, "topic", m.Topic, "cluster", cluster)
	}
	return v == accepted
}

// receive handles a message and acknowledges it. Its content is in the state or in a queue then.
func (e *Engine) receive(_ context.Context, m transport.Message) {
	defer m.Ack()
	source, cluster, _ := wire.TopicSender(m.Topic)
	from := sender{source: source, cluster: cluster}
	e.mu.Lock()
	if e.state.clusterHeard(from.cluster, time.Now()) {
		e.wakePublisher()
	}
	e.mu.Unlock()
	var message wire.Message
	err := m.Err
	if err == nil {
		message, err = wire.Decode(m.Event)
	}
	switch {
	case errors.Is(err, wire.ErrUnknownDataType):
		e.metrics.countReceived("unknown", foreign)
		return
	case err != nil:
		e.metrics.countReceived("unknown", undecodable)
		e.auditReceived(m, from, undecodable, nil)
		e.log.Warn("message dropped: decoding failed", "topic", m.Topic, "error", err)
		return
	}
	switch message := message.(type) {
	case *wire.Status:
		e.config.OnClusterMessage(from.cluster, nil)
		v := e.receiveStatus(from, message)
		e.metrics.countReceived("status", v)
		e.auditReceived(m, from, v, message)
	case *wire.Presence:
		if e.accepts(m, from, "presence", message.Source, message.Cluster) {
			e.noteSession(message)
			e.config.OnClusterMessage(message.Cluster, message)
		}
	case *wire.Digest:
		if e.accepts(m, from, "digest", message.Source, message.Cluster) {
			e.config.OnClusterMessage(message.Cluster, nil)
			e.resyncQueue.add(message.Cluster, resyncTask{digest: message})
		}
	case *wire.SpecResync:
		if e.accepts(m, from, "spec_resync", message.Source, message.Cluster) {
			e.config.OnClusterMessage(from.cluster, nil)
			// An agent that asks for all has just connected, so it may have missed the status resync
			// request.
			e.resyncQueue.add(message.Cluster, resyncTask{request: message, requestStatuses: !message.Partial})
		}
	default:
		e.metrics.countReceived("unknown", foreign)
	}
}
