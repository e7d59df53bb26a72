package delivery

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// checkStatus decides whether a status is accepted (docs/protocol.md, Ordering). stored is the
// work, if has; old reports whether s is older than a status that was accepted.
func checkStatus(s *wire.Status, from sender, source wire.SourceID, stored StoredWork, has, old bool) verdict {
	if v := from.check(source, s.Source, s.Cluster); v != accepted {
		return v
	}
	switch {
	case !s.Sequence.Credible():
		return farAhead
	case !has:
		return unknownWork
	case wire.ClusterName(stored.Work.Namespace) != s.Cluster:
		return wrongCluster
	case s.Generation != 0 && s.Generation < stored.FirstGeneration:
		return formerWork
	case s.Generation > wire.Generation(stored.Work.Generation):
		return ahead
	case old:
		return outOfOrder
	case isTrue(s, workv1.WorkDeleted) && stored.Work.DeletionTimestamp == nil:
		return notDeleting
	default:
		return accepted
	}
}

func isTrue(s *wire.Status, condition string) bool {
	return meta.IsStatusConditionTrue(s.Status.Conditions, condition)
}

// receiveStatus checks s and, if it is accepted, enqueues it for the store.
func (e *Engine) receiveStatus(from sender, s *wire.Status, as receivedAs) verdict {
	s.Session = orderedBy(s, time.Now())
	in := &statusReceived{from: from, status: s, size: memoryOf(s)}
	in.stored, in.has = e.config.Works.Get(s.UID)
	e.step(in)
	stored, k := in.stored, workKey{uid: s.UID, cluster: s.Cluster}
	if in.verdict == unknownWork {
		e.observe(UnknownStatus{s})
	}

	log := e.log.With("work", s.Meta.Name, "uid", s.UID, "cluster", from.cluster, "agent", s.Agent, "generation", s.Generation)
	switch in.verdict {
	case accepted:
		log.Debug("status received", "sequence", s.Sequence, "delta", as.delta)
		e.keepRecent(s, as)
		e.statusQueue.add(k, statusUpdate{name: stored.Work.Name, status: s, size: in.size})
	case tooMuch:
		if in.firstDropped {
			log.Warn("status dropped: too many of the cluster wait to be stored; it is asked again once they are")
		}
	case wrongCluster:
		log.Warn("status dropped: it comes from another cluster than the work's", "named", s.Cluster)
	case farAhead:
		log.Warn("status dropped: its sequence id is later than any clock, somebody may have forged it", "sequence", s.Sequence)
	case ahead:
		log.Warn("status dropped: its generation is higher than the source's", "sourceGeneration", stored.Work.Generation)
		e.statusQueue.add(k, statusUpdate{name: stored.Work.Name, agentGeneration: s.Generation})
	case notDeleting:
		log.Warn("agent deleted a work that is not being deleted, publishing it again")
	default:
		log.Debug("status dropped", "verdict", in.verdict)
	}
	return in.verdict
}

// statusUpdate is what the WorkStore is to be told about one work.
type statusUpdate struct {
	name            string
	status          *wire.Status
	size            int  // of status, see waitingStatuses
	admitted        bool // see Engine.admitStatus
	refused         *metav1.Condition
	agentGeneration wire.Generation // that the agent holds, if it is higher than the source's
	delivery        bool            // see Engine.ReportDelivery
}

// mergeStatusUpdates returns the newer one of each field.
func (e *Engine) mergeStatusUpdates(older, newer statusUpdate) statusUpdate {
	if newer.status == nil {
		newer.status, newer.size = older.status, older.size
	} else if older.status != nil {
		e.waitsNoMore(older.status.Cluster, older.size)
	}
	if newer.refused == nil {
		newer.refused = older.refused
	}
	newer.delivery = newer.delivery || older.delivery
	newer.admitted = newer.admitted || older.admitted
	newer.agentGeneration = max(newer.agentGeneration, older.agentGeneration)
	return newer
}

// waitsNoMore is [core.waitsNoMore].
func (e *Engine) waitsNoMore(cluster wire.ClusterName, size int) (ask bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.waitsNoMore(cluster, size)
}

// writeStatus writes u to the WorkStore. It reports whether to retry.
func (e *Engine) writeStatus(ctx context.Context, k workKey, u statusUpdate) (retry bool) {
	defer e.stored(k, &u)
	defer func() {
		if !retry && e.waitsNoMore(k.cluster, u.size) {
			e.resyncQueue.add(k.cluster, resyncTask{requestStatuses: true})
		}
	}()
	if !e.begin(k.cluster) { // who serves it asks for the status again
		return false
	}
	defer e.end(k.cluster)
	ctx, span, change := e.traceStore(ctx, k, &u)
	err := e.updateStore(ctx, k, u)
	e.endTraceStore(span, k, change, err)
	if err == nil {
		return false
	}
	e.metrics.statusWriteFailures.Inc()
	if ctx.Err() == nil {
		e.log.Warn("status update failed, retrying", "work", u.name, "uid", k.uid, "cluster", k.cluster, "error", err)
	}
	return e.stateOf(k.cluster) != ClusterElsewhere
}

func (e *Engine) updateStore(ctx context.Context, k workKey, u statusUpdate) error {
	e.mu.Lock()
	known := e.core.get(k)
	e.mu.Unlock()
	if u.agentGeneration > 0 && !e.config.Works.AgentAhead(k.uid, u.agentGeneration) && e.identity != "" && !known.authoritative {
		e.WorkRestored(k.uid)
	}
	current := known.refused
	if u.status != nil {
		current.addTo(u.status)
		if err := e.config.Works.UpdateStatus(ctx, u.status); err != nil {
			return err
		}
	}
	// The spec may have been published since.
	if u.refused != nil && current != nil && current.condition.ObservedGeneration == u.refused.ObservedGeneration {
		return e.config.Works.SetCondition(ctx, k.uid, *u.refused)
	}
	if u.delivery && u.status == nil {
		return e.config.Works.WriteDelivery(ctx, k.uid)
	}
	return nil
}

// reported returns status without what its source added to what the agent reported. It shares
// memory with status.
func reported(status *workv1.ManifestWorkStatus) *workv1.ManifestWorkStatus {
	isOwn := func(c metav1.Condition) bool { return workv1.IsOfHub(&c) }
	if !slices.ContainsFunc(status.Conditions, isOwn) {
		return status
	}
	without := *status
	without.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), isOwn)
	return &without
}
