package works

import (
	"cmp"
	"context"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

// connectGrace is how long a hub that starts may take to connect before works say that it has no
// connection.
const connectGrace = 10 * time.Second

// pendingWork is what is known of a pending work.
type pendingWork struct {
	cluster   wire.ClusterName
	times     workv1.DeliveryStatus
	published *delivery.Publication // the last one that has ended
	due       time.Time             // when its status must say that it is pending
}

// acknowledged notes when the broker had taken what was published last. It says so, or an answer of the agent does: the first one counts.
func (e *pendingWork) acknowledged(at time.Time) {
	if e.times.PublishedTime != nil && e.times.AcknowledgedTime == nil {
		e.times.AcknowledgedTime = new(metav1.NewMicroTime(at))
	}
}

// trackWork handles a watch event of a work.
func (c *Controller) trackWork(before, after *workv1.ManifestWork) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil && (after == nil || after.UID != before.UID) {
		c.drop(before.UID)
	}
	if after == nil {
		return
	}
	if workstate.Answered(after) {
		c.drop(after.UID)
		return
	}
	c.track(after, !c.pending.HasSynced())
}

// track has the entry of a pending work. found: the work was there when the hub started, so that
// nobody knows when its spec was accepted. mu is held.
func (c *Controller) track(work *workv1.ManifestWork, found bool) *pendingWork {
	e, ok := c.entries[work.UID]
	if ok && e.times.Generation == work.Generation {
		if e.due.IsZero() {
			c.schedule(work.UID, e)
		}
		return e
	}
	e = &pendingWork{cluster: wire.ClusterName(work.Namespace), times: workv1.DeliveryStatus{Generation: work.Generation}}
	if !found {
		now := metav1.NowMicro()
		e.times.AcceptedTime = &now
	}
	c.entries[work.UID] = e
	if c.clusters[e.cluster] == nil {
		c.clusters[e.cluster] = make(map[types.UID]struct{})
	}
	c.clusters[e.cluster][work.UID] = struct{}{}
	c.schedule(work.UID, e)
	return e
}

// schedule has e looked at after the delay. mu is held.
func (c *Controller) schedule(uid types.UID, e *pendingWork) {
	e.due = time.Now().Add(c.cfg.PendingDelay)
	c.pending.AddAfter(uid, c.cfg.PendingDelay)
}

// drop forgets a work. mu is held.
func (c *Controller) drop(uid types.UID) {
	e, ok := c.entries[uid]
	if !ok {
		return
	}
	delete(c.entries, uid)
	delete(c.clusters[e.cluster], uid)
	if len(c.clusters[e.cluster]) == 0 {
		delete(c.clusters, e.cluster)
	}
}

// clusterChanged handles a watch event of a ManagedCluster. It costs one pass over the pending works
// of the cluster if the change may be a cause.
func (c *Controller) clusterChanged(before, after *clusterv1.ManagedCluster) {
	if before != nil && after != nil && relevant(before) == relevant(after) {
		return
	}
	c.ClusterGained(wire.ClusterName(cmp.Or(after, before).Name))
}

// relevant is what decides about works of a cluster.
func relevant(cluster *clusterv1.ManagedCluster) [4]bool {
	return [4]bool{
		cluster.Spec.HubAcceptsClient, cluster.DeletionTimestamp == nil, workv1.IsPaused(cluster),
		clusterv1.IsAway(meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)),
	}
}

// ClusterGained has the pending works of a cluster looked at that is served from now on. It costs one
// pass over them.
func (c *Controller) ClusterGained(cluster wire.ClusterName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.clusters[cluster] {
		c.schedule(uid, c.entries[uid])
	}
}

// ConnectionChanged follows the hub's connection to the broker. It costs one pass over the pending
// works.
func (c *Controller) ConnectionChanged(up bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected, c.wasConnected = up, true
	for uid, e := range c.entries {
		c.schedule(uid, e)
	}
}

// Published handles the beginning or the end of a publish. It does not block.
func (c *Controller) Published(p delivery.Publication) {
	work, ok := c.cfg.Cache.ByUID(p.UID)
	if !ok || wire.ClusterName(work.Namespace) != p.Cluster || wire.Generation(work.Generation) != p.Generation && !holdsDeletion(work, &p) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[p.UID]
	switch {
	case ok && e.times.Generation == work.Generation:
	case workstate.Answered(work):
		return // published again
	default:
		e = c.track(work, !c.pending.HasSynced()) // before the watch event came here
	}
	if p.Ended.IsZero() {
		began := metav1.NewMicroTime(p.Began)
		e.times.PublishedTime, e.times.AcknowledgedTime = &began, nil
		return
	}
	if p.Err == nil {
		e.acknowledged(p.Ended)
	}
	e.published = &p
	c.schedule(p.UID, e)
}

// holdsDeletion reports whether p is of the last spec of work, which the deletion may have to wait for.
func holdsDeletion(work *workv1.ManifestWork, p *delivery.Publication) bool {
	return work.DeletionTimestamp != nil && p.Refused != "" && p.Generation == wire.Generation(work.Generation)-1
}

// paused reports whether work, or its cluster, carries [workv1.PausedAnnotationKey]. It reads memory
// only.
func (c *Controller) paused(work *workv1.ManifestWork) bool {
	return pausedBy(work, c.cluster(work.Namespace)) != ""
}

// cluster returns the ManagedCluster with name, nil if there is none.
func (c *Controller) cluster(name string) *clusterv1.ManagedCluster {
	if c.cfg.ManagedClusters == nil {
		return nil
	}
	cluster, _ := c.cfg.ManagedClusters.Latest(types.NamespacedName{Name: name})
	return cluster
}

// reportPending has the status of a pending work written if it must say something else.
func (c *Controller) reportPending(ctx context.Context, uid types.UID) (time.Duration, error) {
	c.mu.Lock()
	e, ok := c.entries[uid]
	if !ok {
		c.mu.Unlock()
		return 0, nil
	}
	if wait := time.Until(e.due); wait > 0 {
		c.mu.Unlock()
		return wait, nil
	}
	e.due = time.Time{}
	c.mu.Unlock()
	work, ok := c.cfg.Cache.LatestByUID(uid)
	if !ok {
		return 0, nil
	}
	if _, changed := c.pendingStatus(work); changed && c.limiter.wait(ctx, c.engine.StatusesPending()) == nil {
		c.engine.ReportDelivery(work)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untilConnected(), nil
}

// untilConnected returns how long a hub that starts may still take to connect, 0 if it has connected, or lost
// its connection. mu is held.
func (c *Controller) untilConnected() time.Duration {
	if c.wasConnected {
		return 0
	}
	return max(0, time.Until(c.started.Add(connectGrace)))
}

// pendingStatus returns the status of a work with what is known of its delivery, and whether that differs
// from the stored one. It does not differ for a work that is not pending.
func (c *Controller) pendingStatus(work *workv1.ManifestWork) (status *workv1.ManifestWorkStatus, changed bool) {
	c.mu.Lock()
	e, ok := c.entries[work.UID]
	if !ok || e.times.Generation != work.Generation || workstate.Answered(work) || !c.cfg.Served(e.cluster) {
		c.mu.Unlock()
		return &work.Status, false
	}
	times := e.times
	f := facts{connected: c.connected, published: e.published}
	starting := c.untilConnected() > 0
	c.mu.Unlock()
	if starting {
		return &work.Status, false // the hub is about to connect
	}
	f.name, f.deleting = work.Namespace, work.DeletionTimestamp != nil
	f.registry, f.cluster = c.cfg.ManagedClusters != nil, c.cluster(work.Namespace)
	f.accepted = c.cfg.Accepted(wire.ClusterName(work.Namespace))
	f.pausedBy = pausedBy(work, f.cluster)
	said := metav1.Condition{Type: workv1.WorkDelivered, ObservedGeneration: work.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	said.Status, said.Reason, said.Message = delivered(f)
	if workstate.Current(work, workv1.WorkDelivered) != nil && f.published == nil && said.Reason == workv1.ReasonHeldBack {
		return &work.Status, false // the leader before knew more
	}
	status = work.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, said) {
		return &work.Status, false
	}
	status.Delivery = merge(work, &times)
	setReady(work, status, said.LastTransitionTime)
	return status, true
}

// answer returns the status to store for s, a status of the agent, and whether that differs from the
// stored one.
func (c *Controller) answer(work *workv1.ManifestWork, s *wire.Status) (status *workv1.ManifestWorkStatus, changed bool) {
	c.mu.Lock()
	var known *workv1.DeliveryStatus
	if e, ok := c.entries[work.UID]; ok {
		ahead := s.Generation > wire.Generation(work.Generation) // it says nothing about what was published
		if e.times.Generation == work.Generation && !ahead && isAnswer(work, s) {
			e.acknowledged(time.Now())
		}
		known = e.times.DeepCopy()
	}
	c.mu.Unlock()
	next := answered(work, s, known, metav1.Now().Rfc3339Copy())
	if work.Status.Delivery == nil && equalBeside(&next, &work.Status) {
		return &work.Status, false // a CRD of others prunes the times
	}
	return &next, !equal(&next, &work.Status)
}

// equal reports whether a and b are the same status.
func equal(a, b *workv1.ManifestWorkStatus) bool {
	return equalBeside(a, b) && equalTimes(a.Delivery, b.Delivery)
}

// equalTimes compares to the microsecond, which is what the API stores.
func equalTimes(a, b *workv1.DeliveryStatus) bool {
	if a == nil || b == nil {
		return a == b
	}
	same := func(a, b *metav1.MicroTime) bool {
		return a == b || a != nil && b != nil && a.UnixMicro() == b.UnixMicro()
	}
	return a.Generation == b.Generation && same(a.AcceptedTime, b.AcceptedTime) && same(a.PublishedTime, b.PublishedTime) &&
		same(a.AcknowledgedTime, b.AcknowledgedTime) && same(a.ReceivedTime, b.ReceivedTime) && same(a.AppliedTime, b.AppliedTime) &&
		same(a.ReadyTime, b.ReadyTime)
}

// equalBeside reports whether a and b differ in nothing but the times of the delivery.
func equalBeside(a, b *workv1.ManifestWorkStatus) bool {
	return apiequality.Semantic.DeepEqual(a.Conditions, b.Conditions) && apiequality.Semantic.DeepEqual(a.ResourceStatus, b.ResourceStatus)
}
