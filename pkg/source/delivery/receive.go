package delivery

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/transport"
	"github.com/workwire/workwire/pkg/wire"
)

// verdict says what becomes of a message; it labels a metric.
type verdict string

const (
	accepted    verdict = "taken"
	undecodable verdict = "undecodable"
	// foreign: about something else, or meant for another source.
	foreign verdict = "foreign"
	// wrongCluster: the sender's topic is not the work's cluster's.
	wrongCluster verdict = "wrong_cluster"
	unknownWork  verdict = "unknown_work"
	// formerWork: about an earlier work of the same UID.
	formerWork verdict = "former_work"
	// ahead: about a generation that the source has not made yet.
	ahead verdict = "ahead"
	// outOfOrder: a later status was seen already, or this one.
	outOfOrder verdict = "out_of_order"
	// notDeleting: says Deleted of a work that is not being deleted.
	notDeleting verdict = "not_deleting"
)

// sender is who the topic of a message vouches for.
type sender struct {
	source  wire.SourceID // empty on a broadcast
	cluster wire.ClusterName
}

// check tells whether source is to hear a message from s that names this source,
// or none, and this cluster.
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

// judge decides what becomes of a status (docs/protocol.md, Ordering). held is
// the work, if has; last is the sequence id of the last status of it.
func checkStatus(s *wire.Status, from sender, source wire.SourceID, held StoredWork, has bool, last wire.SequenceID) verdict {
	if v := from.check(source, s.Source, s.Cluster); v != accepted {
		return v
	}
	switch {
	case !has:
		return unknownWork
	case wire.ClusterName(held.Work.Namespace) != s.Cluster:
		return wrongCluster
	case s.Generation != 0 && s.Generation < held.FirstGeneration:
		return formerWork
	case s.Generation > wire.Generation(held.Work.Generation):
		return ahead
	case s.Sequence != 0 && s.Sequence <= max(last, held.LastSequence):
		return outOfOrder
	case isTrue(s, workv1.WorkDeleted) && held.Work.DeletionTimestamp == nil:
		return notDeleting
	default:
		return accepted
	}
}

func isTrue(s *wire.Status, condition string) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, condition)
}

// received takes a message in. What it says is in the ledger or in a lane when it
// returns, which is when the message is acknowledged.
func (l *Engine) receive(_ context.Context, m transport.Message) {
	defer m.Ack()
	topicSource, topicCluster, _ := wire.TopicSender(m.Topic)
	from := sender{source: topicSource, cluster: topicCluster}
	l.updateState(func() {
		if l.state.clusterHeard(from.cluster, time.Now()) {
			notify(l.wake)
		}
	})
	var message wire.Message
	err := m.Err
	if err == nil {
		message, err = wire.Decode(m.Event)
	}
	switch {
	case errors.Is(err, wire.ErrUnknownDataType):
		l.metrics.received.WithLabelValues("unknown", string(foreign)).Inc()
		return
	case err != nil:
		l.metrics.received.WithLabelValues("unknown", string(undecodable)).Inc()
		l.log.Warn("message dropped: it can not be decoded", "topic", m.Topic, "error", err)
		return
	}
	switch message := message.(type) {
	case *wire.Status:
		l.config.OnClusterMessage(from.cluster, nil)
		v := l.receiveStatus(from, message)
		l.metrics.received.WithLabelValues("status", string(v)).Inc()
	case *wire.Presence:
		v := from.check(l.config.Source, message.Source, message.Cluster)
		l.metrics.received.WithLabelValues("presence", string(v)).Inc()
		if v == accepted {
			l.config.OnClusterMessage(message.Cluster, message)
		}
		return
	case *wire.SpecResync:
		v := from.check(l.config.Source, message.Source, message.Cluster)
		l.metrics.received.WithLabelValues("spec_resync", string(v)).Inc()
		if v == accepted {
			l.config.OnClusterMessage(from.cluster, nil)
			// An agent that asks has just connected, so it may have missed our question.
			l.resyncQueue.add(message.Cluster, resyncTask{request: message, requestStatuses: true})
			return
		}
		if v == wrongCluster {
			l.log.Warn("resync request dropped: it names another cluster than its topic", "topic", m.Topic, "cluster", message.Cluster)
		}
	default:
		l.metrics.received.WithLabelValues("unknown", string(foreign)).Inc()
	}
}

// status judges s and puts it in line for Works.
func (l *Engine) receiveStatus(from sender, s *wire.Status) verdict {
	held, has := l.config.Works.Get(s.UID)
	k := workKey{uid: s.UID, cluster: s.Cluster}
	deleted := isTrue(s, workv1.WorkDeleted)
	l.mu.Lock()
	v := checkStatus(s, from, l.config.Source, held, has, l.state.lastSequence(k))
	switch {
	case v == accepted:
		deleting := isTrue(s, workv1.WorkDeleting) || s.Meta.DeletionTimestamp != nil
		l.state.statusAccepted(k, s, deleting, deleted)
	case v == unknownWork && deleted:
		l.state.agentDeleted(k)
	case v == notDeleting:
		l.state.deletedUnexpectedly(k, s)
		notify(l.wake)
	}
	l.mu.Unlock()

	log := l.log.With("work", s.Meta.Name, "uid", s.UID, "cluster", s.Cluster, "agent", s.Agent, "generation", s.Generation)
	switch v {
	case accepted:
		log.Debug("status received", "sequence", s.Sequence)
		l.statusQueue.add(k, statusUpdate{name: held.Work.Name, status: s})
	case wrongCluster:
		log.Warn("status dropped: it comes from another cluster than its work's", "topicCluster", from.cluster)
	case ahead:
		log.Warn("status dropped: it is about a newer spec than the source has", "sourceGeneration", held.Work.Generation)
		l.statusQueue.add(k, statusUpdate{name: held.Work.Name, outdated: s.Generation})
	case notDeleting:
		log.Warn("the agent has deleted a work that is not being deleted, it is published again")
	default:
		log.Debug("status dropped", "verdict", v)
	}
	return v
}
