package clusters

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// assignmentPoll is how often a hub looks whether it may claim a cluster that another hub holds. A
	// hub that lets a cluster go is noticed at once.
	assignmentPoll = 2 * time.Second
	// drainPoll is how often a hub looks whether what it does about a cluster that it lets go has ended.
	drainPoll = 50 * time.Millisecond
	// contendedAfter is how long a cluster that the hub selects may be held by another one before that
	// is reported: both select it, or the other one does not see its labels.
	contendedAfter = 30 * time.Second
)

// EventTwoHubs is the reason of the event on a ManagedCluster that two hubs select.
const EventTwoHubs = "TwoHubsSelectCluster"

// Part is the part of the clusters that one of several hubs of an API serves. A hub serves a cluster
// while it selects it and holds it: while the annotation [clusterv1.HubAnnotationKey] of the
// ManagedCluster names the hub. Another hub writes its name there only when none is there, or when the
// hub that is named has ended. So a cluster has one hub at any time, also when selectors overlap, and
// when watch events are late.
type Part struct {
	// Hub is the name of this hub, the same for its replicas; required.
	Hub string
	// Selector selects ManagedClusters by their labels; required.
	Selector labels.Selector
	// Ended reports whether no replica of the hub with a name runs, and none will before it has read what
	// is written now; required.
	Ended func(ctx context.Context, hub string) (bool, error)
	// Busy reports whether the hub still publishes to a cluster, or writes about its works; required.
	// It must not block.
	Busy func(cluster wire.ClusterName) bool
}

// selects reports whether the hub wants to serve cluster.
func (p *Part) selects(cluster *clusterv1.ManagedCluster) bool {
	return p == nil || p.Selector.Matches(labels.Set(cluster.Labels))
}

// holds reports whether no other hub may serve cluster, and this one wants to.
func (p *Part) holds(cluster *clusterv1.ManagedCluster) bool {
	return p == nil || p.selects(cluster) && cluster.Annotations[clusterv1.HubAnnotationKey] == p.Hub
}

// assignment is what decides what a hub does about a cluster.
type assignment struct {
	// selected: the hub wants to serve it.
	selected bool
	// self is the name of the hub, holder that of the hub that holds the cluster, empty for none.
	self, holder string
	// ended: holder is another hub, which no longer runs.
	ended bool
	// catchingUp: the hub has claimed the cluster, and its caches may lack what was written before that.
	catchingUp bool
	// busy: something about the cluster is under way.
	busy bool
}

// assignmentStep is what a hub does about a cluster.
type assignmentStep string

const (
	stepNone    assignmentStep = "none"     // it is another hub's
	stepServe   assignmentStep = "serve"    // it is ours
	stepClaim   assignmentStep = "claim"    // write our name
	stepCatchUp assignmentStep = "catch up" // read what the hub before has written
	stepWait    assignmentStep = "wait"     // for the hub that holds it
	stepDrain   assignmentStep = "drain"    // until nothing is under way
	stepRelease assignmentStep = "release"  // remove our name
)

// decide returns what to do about the cluster.
func (a assignment) decide() assignmentStep {
	ours := a.holder == a.self
	switch {
	case !a.selected && !ours:
		return stepNone
	case !a.selected && a.busy:
		return stepDrain
	case !a.selected:
		return stepRelease
	case ours && a.catchingUp:
		return stepCatchUp
	case ours:
		return stepServe
	case a.holder == "" || a.ended:
		return stepClaim
	default:
		return stepWait
	}
}

// assignments is what a hub with a part remembers of clusters. It is safe for concurrent use.
type assignments struct {
	wake chan struct{} // has room for one: a cluster was claimed

	mu         sync.Mutex
	catchingUp map[wire.ClusterName]bool      // guarded by mu: the caches may lack what was written before the claim
	waiting    map[wire.ClusterName]time.Time // guarded by mu: since when another hub holds it; zero: reported
}

func newAssignments() *assignments {
	return &assignments{
		wake: make(chan struct{}, 1), catchingUp: make(map[wire.ClusterName]bool), waiting: make(map[wire.ClusterName]time.Time),
	}
}

// claiming notes that a cluster is about to be claimed.
func (a *assignments) claiming(name wire.ClusterName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.catchingUp[name] = true
}

// claimed has runGains look.
func (a *assignments) claimed() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// isCatchingUp reports whether a cluster was claimed, and is not served yet.
func (a *assignments) isCatchingUp(name wire.ClusterName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.catchingUp[name]
}

// done forgets clusters that were claimed.
func (a *assignments) done(names ...wire.ClusterName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range names {
		delete(a.catchingUp, name)
	}
}

// all returns the clusters that were claimed and are not served yet.
func (a *assignments) all() []wire.ClusterName {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Keys(a.catchingUp))
}

// waits notes whether a cluster that the hub selects is held by another one, and reports whether that
// is to be reported now: once.
func (a *assignments) waits(name wire.ClusterName, waiting bool, now time.Time) (report bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known := a.waiting[name]
	switch {
	case !waiting:
		delete(a.waiting, name)
	case !known:
		a.waiting[name] = now
	case !since.IsZero() && now.Sub(since) >= contendedAfter:
		a.waiting[name] = time.Time{}
		return true
	}
	return false
}

// contended returns the number of clusters that were reported and are still held by another hub.
func (a *assignments) contended() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, since := range a.waiting {
		if since.IsZero() {
			n++
		}
	}
	return n
}

// Serves reports whether the hub serves a cluster: always, without Config.Part. A hub that registers
// clusters serves those without a ManagedCluster, which get no works. It reads memory only.
func (c *Clusters) Serves(cluster wire.ClusterName) bool {
	if c.parts == nil {
		return true
	}
	stored := c.index.stored(cluster)
	if stored == nil {
		return c.cfg.AutoRegister
	}
	return c.cfg.Part.holds(stored) && !c.parts.isCatchingUp(cluster)
}

// assign claims a cluster or lets it go. It reports whether the hub serves it, and after which time to
// look again.
func (c *Clusters) assign(ctx context.Context, name wire.ClusterName) (serving bool, after time.Duration, err error) {
	stored := c.index.stored(name)
	if stored == nil {
		c.parts.done(name)
		c.parts.waits(name, false, time.Now())
		return c.Serves(name), 0, nil
	}
	p := c.cfg.Part
	a := assignment{
		selected: p.selects(stored), self: p.Hub, holder: stored.Annotations[clusterv1.HubAnnotationKey],
		catchingUp: c.parts.isCatchingUp(name), busy: p.Busy(name),
	}
	if a.selected && a.holder != "" && a.holder != p.Hub {
		if a.ended, err = p.Ended(ctx, a.holder); err != nil {
			return false, 0, fmt.Errorf("cluster %s is held by the hub %s: %w", name, a.holder, err)
		}
	}
	step := a.decide()
	c.noteWaiting(stored, a.holder, step == stepWait)
	switch step {
	case stepServe:
		return true, 0, nil
	case stepClaim:
		c.parts.claiming(name)
		return false, 0, c.claim(ctx, stored, a.holder)
	case stepCatchUp:
		c.parts.claimed()
	case stepWait:
		return false, assignmentPoll, nil
	case stepDrain:
		return false, drainPoll, nil
	case stepRelease:
		c.parts.done(name)
		if c.listener != nil {
			c.listener.ClusterLost(name)
		}
		if _, err = c.patch(ctx, stored, holderPatch(stored, nil)); err == nil {
			c.cfg.Logger.Info("cluster let go", "cluster", name)
		}
		return false, 0, err
	case stepNone:
		c.parts.done(name)
	}
	return false, 0, nil
}

// claim writes the hub's name into a ManagedCluster, unless it has changed since it was read.
func (c *Clusters) claim(ctx context.Context, stored *clusterv1.ManagedCluster, before string) error {
	written, err := c.patch(ctx, stored, holderPatch(stored, &c.cfg.Part.Hub))
	if written == nil || err != nil {
		return err
	}
	c.cfg.Logger.Info("cluster claimed", "cluster", stored.Name, "heldBefore", before)
	c.parts.claimed()
	return nil
}

// holderPatch returns the merge patch that names the hub that holds cluster; nil for none. It applies to
// this resource version only.
func holderPatch(cluster *clusterv1.ManagedCluster, hub *string) any {
	return map[string]any{"metadata": map[string]any{
		"resourceVersion": cluster.ResourceVersion, "annotations": map[string]any{clusterv1.HubAnnotationKey: hub},
	}}
}

// noteWaiting reports a cluster that another hub does not let go.
func (c *Clusters) noteWaiting(cluster *clusterv1.ManagedCluster, holder string, waiting bool) {
	if !c.parts.waits(wire.ClusterName(cluster.Name), waiting, time.Now()) {
		return
	}
	c.cfg.Logger.Error("another hub serves a cluster that this hub selects", "cluster", cluster.Name, "hub", c.cfg.Part.Hub, "other", holder,
		"advice", "change --cluster-selector of one of them, so that no cluster is selected by two hubs")
	c.recordEvents(cluster, event{corev1.EventTypeWarning, EventTwoHubs, fmt.Sprintf(
		"The hub %s serves the cluster and does not let it go, and the hub %s selects it: change --cluster-selector of one of them if both select it", holder, c.cfg.Part.Hub)})
}

// runGains begins to serve the clusters that were claimed, once the cache of works holds all that the
// hub before has written: an agent may hold a work that the watch events have not shown yet, which must
// not be taken for a deleted one. It costs one list of metadata of all works for the clusters that were
// claimed meanwhile.
func (c *Clusters) runGains(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.parts.wake:
		}
		var names []wire.ClusterName
		for _, name := range c.parts.all() {
			if stored := c.index.stored(name); stored != nil && c.cfg.Part.holds(stored) {
				names = append(names, name)
			}
		}
		if len(names) == 0 {
			continue
		}
		if !c.cfg.Works.CatchUp(ctx) {
			return
		}
		c.parts.done(names...)
		for _, name := range names {
			c.gained(name)
		}
	}
}

// gained begins to serve a cluster.
func (c *Clusters) gained(name wire.ClusterName) {
	stored := c.index.stored(name)
	if stored == nil || !c.Serves(name) {
		return
	}
	c.cfg.Logger.Info("cluster gained", "cluster", name)
	c.index.clusterChanged(name, stored, time.Now())
	if c.listener != nil {
		c.listener.ClusterGained(name)
		c.listener.AcceptanceChanged(name)
	}
}

// partCollector collects which hubs hold how many clusters; nothing if the hub serves all clusters.
type partCollector struct{ c *Clusters }

var (
	heldByHubDesc = prometheus.NewDesc("workwire_hub_clusters_by_hub", "With --cluster-selector: ManagedClusters by the hub that serves them, as "+
		"every hub sees them; an empty hub is for those that no hub serves.", []string{"hub"}, nil)
	servingDesc = prometheus.NewDesc("workwire_hub_serving", "With --cluster-selector: 1 while the hub with this name is connected to the broker, "+
		"else 0; a standby is not.", []string{"hub"}, nil)
	contendedDesc = prometheus.NewDesc("workwire_hub_clusters_contended", "With --cluster-selector: ManagedClusters that this hub selects and another "+
		"hub has served for more than 30 seconds.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (p partCollector) Describe(to chan<- *prometheus.Desc) {
	to <- heldByHubDesc
	to <- servingDesc
	to <- contendedDesc
}

// Collect implements [prometheus.Collector]. It costs one pass over the clusters.
func (p partCollector) Collect(to chan<- prometheus.Metric) {
	if p.c.parts == nil {
		return
	}
	hubs := map[string]int{"": 0, p.c.cfg.Part.Hub: 0}
	for _, cluster := range p.c.cache.All() {
		hubs[cluster.Annotations[clusterv1.HubAnnotationKey]]++
	}
	for hub, n := range hubs {
		to <- prometheus.MustNewConstMetric(heldByHubDesc, prometheus.GaugeValue, float64(n), hub)
	}
	serving := 0.0
	if p.c.index.isOnline() {
		serving = 1
	}
	to <- prometheus.MustNewConstMetric(servingDesc, prometheus.GaugeValue, serving, p.c.cfg.Part.Hub)
	to <- prometheus.MustNewConstMetric(contendedDesc, prometheus.GaugeValue, float64(p.c.parts.contended()))
}
