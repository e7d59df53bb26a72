package pending

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/hub/works"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/source/delivery"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// DefaultDelay is the default of [Config.Delay].
	DefaultDelay = 5 * time.Second
	// connectGrace is how long a hub that starts may take to connect before works say that it has no
	// connection.
	connectGrace = 10 * time.Second
)

// Config configures a [Tracker].
type Config struct {
	// Works are those of the hub; required.
	Works *works.Cache
	// ManagedClusters of the hub; nil if it does not keep any.
	ManagedClusters *controller.Cache[*clusterv1.ManagedCluster]
	// Served reports whether the hub serves a cluster; nothing is written about works of others. It must
	// not block. Default: all.
	Served func(wire.ClusterName) bool
	// Accepted reports whether works may be delivered to a cluster; required. It must not block.
	Accepted func(wire.ClusterName) bool
	// Delay is how long a work may be pending before its status says so, and how long a new cause
	// may last; default 5s.
	Delay time.Duration
	// Queues creates the metrics of the queue "pending"; default none.
	Queues workqueue.MetricsProvider
	// Registerer gets the metrics workwire_hub_delivery_seconds and workwire_hub_works_pending;
	// default none.
	Registerer prometheus.Registerer
	// Logger; default slog.Default().
	Logger *slog.Logger
}

// Writer writes the status of a pending work: a *delivery.Engine.
type Writer interface {
	// ReportDelivery has [Tracker.Pending] asked for work, and what it returns written. It must not
	// block.
	ReportDelivery(work *workv1.ManifestWork)
	// StatusesPending returns how many works have a status that is not written yet.
	StatusesPending() int
}

// Tracker knows which works are pending, and why. Its methods are safe for concurrent use.
type Tracker struct {
	*controller.Controller[types.UID]
	cfg     Config
	writer  Writer // set before Run
	limiter writeLimiter
	hops    *prometheus.HistogramVec

	mu           sync.Mutex
	started      time.Time                                   // guarded by mu: when Run was called
	wasConnected bool                                        // guarded by mu
	connected    bool                                        // guarded by mu
	entries      map[types.UID]*entry                        // guarded by mu
	clusters     map[wire.ClusterName]map[types.UID]struct{} // guarded by mu: the works of entries
}

// entry is what is known of a pending work.
type entry struct {
	cluster   wire.ClusterName
	times     workv1.DeliveryStatus
	published *delivery.Publication // the last one that has ended
	due       time.Time             // when its status must say that it is pending
}

// New returns a tracker. It does no I/O and starts nothing. It reports every fault of cfg, and fails
// when the metrics are registered already.
func New(cfg Config) (*Tracker, error) {
	if err := required.Fields(cfg, "Works", "Accepted"); err != nil {
		return nil, fmt.Errorf("pending: %w", err)
	}
	if cfg.Served == nil {
		cfg.Served = func(wire.ClusterName) bool { return true }
	}
	cfg.Delay, cfg.Logger = cmp.Or(cfg.Delay, DefaultDelay), cmp.Or(cfg.Logger, slog.Default())
	t := &Tracker{
		cfg: cfg, limiter: newWriteLimiter(), hops: newHops(),
		entries: make(map[types.UID]*entry), clusters: make(map[wire.ClusterName]map[types.UID]struct{}),
	}
	watches := []controller.Watch{controller.On(cfg.Works.Cache, t.workChanged)}
	if cfg.ManagedClusters != nil {
		watches = append(watches, controller.On(cfg.ManagedClusters, t.clusterChanged))
	}
	var err error
	t.Controller, err = controller.New(controller.Config[types.UID]{
		Name: "pending", Reconcile: t.reconcile, Workers: 1, Watches: watches, Queues: cfg.Queues, Logger: cfg.Logger,
	})
	if err == nil {
		err = controller.Register(cfg.Registerer, t.hops, t.pendingGauge())
	}
	if err != nil {
		return nil, fmt.Errorf("pending: %w", err)
	}
	return t, nil
}

// Run writes what is pending until ctx ends; it returns nil then. It must be called once.
func (t *Tracker) Run(ctx context.Context) error {
	t.mu.Lock()
	t.started = time.Now()
	t.mu.Unlock()
	return t.Controller.Run(ctx)
}

// WriteWith sets who writes. It must be called before Run.
func (t *Tracker) WriteWith(w Writer) { t.writer = w }

// workChanged handles a watch event of a work.
func (t *Tracker) workChanged(before, after *workv1.ManifestWork) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil && (after == nil || after.UID != before.UID) {
		t.drop(before.UID)
	}
	if after == nil {
		return
	}
	if answered(after) {
		t.drop(after.UID)
		return
	}
	t.track(after, !t.HasSynced())
}

// track has the entry of a pending work. found: the work was there when the hub started, so that
// nobody knows when its spec was accepted. mu is held.
func (t *Tracker) track(work *workv1.ManifestWork, found bool) *entry {
	e, ok := t.entries[work.UID]
	if ok && e.times.Generation == work.Generation {
		if e.due.IsZero() {
			t.schedule(work.UID, e)
		}
		return e
	}
	e = &entry{cluster: wire.ClusterName(work.Namespace), times: workv1.DeliveryStatus{Generation: work.Generation}}
	if !found {
		now := metav1.NowMicro()
		e.times.AcceptedTime = &now
	}
	t.entries[work.UID] = e
	if t.clusters[e.cluster] == nil {
		t.clusters[e.cluster] = make(map[types.UID]struct{})
	}
	t.clusters[e.cluster][work.UID] = struct{}{}
	t.schedule(work.UID, e)
	return e
}

// schedule has e looked at after the delay. mu is held.
func (t *Tracker) schedule(uid types.UID, e *entry) {
	e.due = time.Now().Add(t.cfg.Delay)
	t.AddAfter(uid, t.cfg.Delay)
}

// drop forgets a work. mu is held.
func (t *Tracker) drop(uid types.UID) {
	e, ok := t.entries[uid]
	if !ok {
		return
	}
	delete(t.entries, uid)
	delete(t.clusters[e.cluster], uid)
	if len(t.clusters[e.cluster]) == 0 {
		delete(t.clusters, e.cluster)
	}
}

// clusterChanged handles a watch event of a ManagedCluster. It costs one pass over the pending works
// of the cluster if the change may be a cause.
func (t *Tracker) clusterChanged(before, after *clusterv1.ManagedCluster) {
	if before != nil && after != nil && relevant(before) == relevant(after) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.clusters[wire.ClusterName(cmp.Or(after, before).Name)] {
		t.schedule(uid, t.entries[uid])
	}
}

// relevant is what decides about works of a cluster.
func relevant(c *clusterv1.ManagedCluster) [4]bool {
	return [4]bool{
		c.Spec.HubAcceptsClient, c.DeletionTimestamp == nil, workv1.IsPaused(c),
		meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable),
	}
}

// ClusterGained has the pending works of a cluster looked at that is served from now on. It costs one
// pass over them.
func (t *Tracker) ClusterGained(cluster wire.ClusterName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.clusters[cluster] {
		t.schedule(uid, t.entries[uid])
	}
}

// ConnectionChanged follows the hub's connection to the broker. It costs one pass over the pending
// works.
func (t *Tracker) ConnectionChanged(up bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.connected, t.wasConnected = up, true
	for uid, e := range t.entries {
		t.schedule(uid, e)
	}
}

// Published handles the beginning or the end of a publish. It does not block.
func (t *Tracker) Published(p delivery.Publication) {
	work, ok := t.cfg.Works.ByUID(p.UID)
	if !ok || wire.ClusterName(work.Namespace) != p.Cluster || wire.Generation(work.Generation) != p.Generation {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e, ok := t.entries[p.UID]
	switch {
	case ok && e.times.Generation == work.Generation:
	case answered(work):
		return // published again
	default:
		e = t.track(work, !t.HasSynced()) // before the watch event came here
	}
	if p.Ended.IsZero() {
		began := metav1.NewMicroTime(p.Began)
		e.times.PublishedTime, e.times.AcknowledgedTime = &began, nil
		return
	}
	if p.Err == nil {
		ended := metav1.NewMicroTime(p.Ended)
		e.times.AcknowledgedTime = &ended
	}
	e.published = &p
	t.schedule(p.UID, e)
}

// Paused reports whether work, or its cluster, carries [workv1.PausedAnnotationKey]. It reads memory
// only.
func (t *Tracker) Paused(work *workv1.ManifestWork) bool {
	return pausedBy(work, t.cluster(work.Namespace)) != ""
}

// cluster returns the ManagedCluster with name, nil if there is none.
func (t *Tracker) cluster(name string) *clusterv1.ManagedCluster {
	if t.cfg.ManagedClusters == nil {
		return nil
	}
	cluster, _ := t.cfg.ManagedClusters.Latest(types.NamespacedName{Name: name})
	return cluster
}

// reconcile has the status of a pending work written if it must say something else.
func (t *Tracker) reconcile(ctx context.Context, uid types.UID) (time.Duration, error) {
	t.mu.Lock()
	e, ok := t.entries[uid]
	if !ok {
		t.mu.Unlock()
		return 0, nil
	}
	if wait := time.Until(e.due); wait > 0 {
		t.mu.Unlock()
		return wait, nil
	}
	e.due = time.Time{}
	t.mu.Unlock()
	work, ok := t.cfg.Works.LatestByUID(uid)
	if !ok {
		return 0, nil
	}
	if _, changed := t.Pending(work); changed && t.limiter.wait(ctx, t.writer.StatusesPending()) == nil {
		t.writer.ReportDelivery(work)
	}
	return t.untilConnected(), nil
}

// untilConnected returns how long a hub that starts may still take to connect, 0 if it does not.
func (t *Tracker) untilConnected() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.connected || t.wasConnected {
		return 0
	}
	return max(0, time.Until(t.started.Add(connectGrace)))
}

// Pending returns the status of a work with what is known of its delivery, and whether that differs
// from the stored one. It does not differ for a work that is not pending.
func (t *Tracker) Pending(work *workv1.ManifestWork) (status *workv1.ManifestWorkStatus, changed bool) {
	t.mu.Lock()
	e, ok := t.entries[work.UID]
	if !ok || e.times.Generation != work.Generation || answered(work) || !t.cfg.Served(e.cluster) {
		t.mu.Unlock()
		return &work.Status, false
	}
	times := e.times
	f := facts{connected: t.connected, published: e.published}
	starting := !t.connected && !t.wasConnected && time.Since(t.started) < connectGrace
	t.mu.Unlock()
	stored := meta.FindStatusCondition(work.Status.Conditions, workv1.WorkDelivered)
	said := stored != nil && stored.ObservedGeneration == work.Generation
	if starting {
		return &work.Status, false // the hub is about to connect
	}
	f.name, f.deleting = work.Namespace, work.DeletionTimestamp != nil
	f.registry, f.cluster = t.cfg.ManagedClusters != nil, t.cluster(work.Namespace)
	f.accepted = t.cfg.Accepted(wire.ClusterName(work.Namespace))
	f.pausedBy = pausedBy(work, f.cluster)
	c := metav1.Condition{Type: workv1.WorkDelivered, ObservedGeneration: work.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	c.Status, c.Reason, c.Message = decide(f)
	if said && f.published == nil && c.Reason == workv1.ReasonHeldBack {
		return &work.Status, false // the leader before knew more
	}
	status = work.Status.DeepCopy()
	if !meta.SetStatusCondition(&status.Conditions, c) {
		return &work.Status, false
	}
	status.Delivery = merge(work, &times)
	return status, true
}

// Answer returns the status to store for s, a status of the agent, and whether that differs from the
// stored one.
func (t *Tracker) Answer(work *workv1.ManifestWork, s *wire.Status) (status *workv1.ManifestWorkStatus, changed bool) {
	t.mu.Lock()
	var known *workv1.DeliveryStatus
	if e, ok := t.entries[work.UID]; ok {
		known = e.times.DeepCopy()
	}
	t.mu.Unlock()
	next := answer(work, s, known, metav1.Now().Rfc3339Copy())
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
