package delivery

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// receiveStatus checks s and, if it is accepted, has it stored, which owns it then.
func (e *Engine) receiveStatus(from sender, s *wire.Status, as receivedAs) verdict {
	s.Session = orderedBy(s, time.Now())
	in := &statusReceived{from: from, status: s, size: memoryOf(&s.Status)}
	in.stored, in.has = e.config.Works.Get(s.UID)
	var recent recentStatus
	kept := false
	if in.has {
		recent, kept = e.recent.encode(s, as)
	}
	k, sequence, generation := workKey{uid: s.UID, cluster: s.Cluster}, s.Sequence, s.Generation
	log := e.log.With("work", s.Meta.Name, "uid", s.UID, "cluster", from.cluster, "agent", s.Agent, "generation", generation)
	if e.step(in); in.verdict == accepted && kept {
		e.recent.keep(k, recent)
	}
	switch in.verdict {
	case accepted:
		log.Debug("status received", "sequence", sequence, "delta", as.delta)
	case tooMuch:
		if in.firstDropped {
			log.Warn("status dropped: too many of the cluster wait to be stored; it is asked again once they are")
		}
	case wrongCluster:
		log.Warn("status dropped: it comes from another cluster than the work's", "named", k.cluster)
	case farAhead:
		log.Warn("status dropped: its sequence id is later than any clock, somebody may have forged it", "sequence", sequence)
	case ahead:
		log.Warn("status dropped: its generation is higher than the source's", "sourceGeneration", in.stored.Work.Generation)
	case notDeleting:
		log.Warn("agent deleted a work that is not being deleted, publishing it again")
	default:
		log.Debug("status dropped", "verdict", in.verdict)
	}
	return in.verdict
}

// store tells the WorkStore what a says, and the core how that has ended.
func (e *Engine) store(ctx context.Context, a *storing) {
	k, u := a.job.key.workKey, &a.update
	ctx, span, change := e.traceStore(ctx, k, u)
	err := e.updateStore(ctx, a)
	e.endTraceStore(span, k, change, err)
	if err != nil {
		e.metrics.statusWriteFailures.Inc()
		if ctx.Err() == nil {
			e.log.Warn("status update failed, retrying", "work", u.name, "uid", k.uid, "cluster", k.cluster, "error", err)
		}
	}
	e.step(storeEnded{a, err != nil})
}

func (e *Engine) updateStore(ctx context.Context, a *storing) error {
	uid, u := a.job.key.uid, a.update
	if u.agentGeneration > 0 && !e.config.Works.AgentAhead(uid, u.agentGeneration) && e.identity != "" && !a.authoritative {
		e.step(workRestored{a.job.key.workKey, repeat})
	}
	if u.status != nil {
		a.refused.addTo(u.status)
		if err := e.config.Works.UpdateStatus(ctx, u.status); err != nil {
			return err
		}
	}
	// The spec may have been published since.
	if u.refused != nil && a.refused != nil && a.refused.condition.ObservedGeneration == u.refused.ObservedGeneration {
		return e.config.Works.SetCondition(ctx, uid, *u.refused)
	}
	if u.delivery && u.status == nil {
		return e.config.Works.WriteDelivery(ctx, uid)
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
