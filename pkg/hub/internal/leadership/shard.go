package leadership

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// holderPoll is how often a hub looks whether it may claim a cluster that another hub holds. A
	// hub that lets a cluster go is noticed at once.
	holderPoll = 2 * time.Second
	// drainPoll is how often a hub looks whether what it does about a cluster that it lets go has ended.
	drainPoll = 50 * time.Millisecond
	// contendedAfter is how long a cluster that the hub selects may be held by another one before that
	// is reported: both select it, or the other one does not see its labels.
	contendedAfter = 30 * time.Second
)

// ShardConfig configures a [Shard]. All fields are required.
type ShardConfig struct {
	// Hub is the name of this hub, the same for its replicas.
	Hub string
	// Selector selects ManagedClusters by their labels.
	Selector labels.Selector
	// Unregistered has the hub serve clusters without a ManagedCluster.
	Unregistered bool
	// ManagedClusters are all clusters.
	ManagedClusters *controller.Cache[*clusterv1.ManagedCluster]
	// CatchUpWorks waits until the cache of works holds all that was written before now. It reports false
	// when ctx ended before.
	CatchUpWorks func(ctx context.Context) bool
	// Ended reports whether no replica of the hub with a name runs, and none will before it has read what
	// is written now.
	Ended func(ctx context.Context, hub string) (bool, error)
	// Busy reports whether the hub still publishes to a cluster, or writes about its works. It must not
	// block.
	Busy func(cluster wire.ClusterName) bool
	// Connected reports whether the hub is connected to the broker.
	Connected func() bool
	// Recorder gets events about other hubs and programs; nil, without a Selector only: none.
	Recorder record.EventRecorder
	// Logger gets a line about each cluster that is claimed, gained or let go.
	Logger *slog.Logger
}

// Shard is the clusters that one of several hubs of an API serves. A hub serves a cluster while it
// selects it and holds it: while the annotation [clusterv1.HubAnnotationKey] of the ManagedCluster names
// the hub. Another hub writes its name there only when none is there, or when the hub that is named has
// ended. So a cluster has one hub at any time, also when selectors overlap, and when watch events are late.
//
// A nil Shard is all clusters, whatever the annotation says. Methods are safe for concurrent use.
type Shard struct {
	cfg  ShardConfig
	wake chan struct{} // has room for one: a cluster was claimed

	mu         sync.Mutex
	claims     int                            // guarded by mu
	catchingUp map[wire.ClusterName]int       // guarded by mu: the number of the claim; the caches may lack what was written before it
	waiting    map[wire.ClusterName]time.Time // guarded by mu: since when another hub holds it; zero: reported
}

// Fleet is what a [Shard] does to clusters.
type Fleet interface {
	// Patch writes a merge patch to a ManagedCluster and returns the result; nil if it is gone.
	Patch(ctx context.Context, cluster *clusterv1.ManagedCluster, patch any) (*clusterv1.ManagedCluster, error)
	// ClusterGained is called when the hub begins to serve a cluster: as at a start of the hub, nothing is
	// known of what the cluster has been sent, and has said.
	ClusterGained(cluster wire.ClusterName)
	// ClusterLost is called when the hub no longer serves a cluster, and Busy is false for it.
	ClusterLost(cluster wire.ClusterName)
}

// NewShard returns a shard. It does no I/O.
func NewShard(cfg ShardConfig) *Shard {
	return &Shard{
		cfg: cfg, wake: make(chan struct{}, 1), catchingUp: make(map[wire.ClusterName]int), waiting: make(map[wire.ClusterName]time.Time),
	}
}

// Name returns the name of the hub that serves the shard; empty for all clusters.
func (s *Shard) Name() string {
	if s == nil {
		return ""
	}
	return s.cfg.Hub
}

// Holds reports whether no other hub may serve a cluster, and this one wants to. cluster is nil for one
// without a ManagedCluster.
func (s *Shard) Holds(cluster *clusterv1.ManagedCluster) bool {
	return s == nil || cluster != nil && s.selects(cluster) && cluster.Annotations[clusterv1.HubAnnotationKey] == s.cfg.Hub
}

func (s *Shard) selects(cluster *clusterv1.ManagedCluster) bool {
	return s.cfg.Selector.Matches(labels.Set(cluster.Labels))
}

// Serves reports whether the hub serves a cluster. A hub that registers clusters serves those without a
// ManagedCluster, which get no works. It reads memory only.
func (s *Shard) Serves(cluster wire.ClusterName) bool {
	if s == nil {
		return true
	}
	stored := s.stored(cluster)
	if stored == nil {
		return s.cfg.Unregistered
	}
	return s.Holds(stored) && !s.isCatchingUp(cluster)
}

// stored returns the ManagedCluster of a cluster as it was last seen or written; nil if there is none.
func (s *Shard) stored(name wire.ClusterName) *clusterv1.ManagedCluster {
	cluster, _ := s.cfg.ManagedClusters.Latest(types.NamespacedName{Name: string(name)})
	return cluster
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

// Assign claims a cluster or lets it go. It reports whether the hub serves it, and after which time to
// look again; zero: when something has changed.
func (s *Shard) Assign(ctx context.Context, fleet Fleet, name wire.ClusterName) (serving bool, after time.Duration, err error) {
	if s == nil {
		return true, 0, nil
	}
	stored := s.stored(name)
	if stored == nil {
		s.forgetClaim(name)
		s.waits(name, false, time.Now())
		return s.cfg.Unregistered, 0, nil
	}
	a := assignment{
		selected: s.selects(stored), self: s.cfg.Hub, holder: stored.Annotations[clusterv1.HubAnnotationKey],
		catchingUp: s.isCatchingUp(name), busy: s.cfg.Busy(name),
	}
	if a.selected && a.holder != "" && a.holder != a.self {
		if a.ended, err = s.cfg.Ended(ctx, a.holder); err != nil {
			return false, 0, fmt.Errorf("cluster %s is held by the hub %s: %w", name, a.holder, err)
		}
	}
	step := a.decide()
	s.reportContended(stored, a.holder, step == stepWait)
	switch step {
	case stepServe:
		return true, 0, nil
	case stepClaim:
		return false, 0, s.claim(ctx, fleet, stored, a.holder)
	case stepCatchUp:
		s.wakeRun()
	case stepWait:
		return false, holderPoll, nil
	case stepDrain:
		return false, drainPoll, nil
	case stepRelease:
		return false, 0, s.release(ctx, fleet, stored)
	case stepNone:
		s.forgetClaim(name)
	}
	return false, 0, nil
}

// claim writes the hub's name into a ManagedCluster, unless it has changed since it was read.
func (s *Shard) claim(ctx context.Context, fleet Fleet, stored *clusterv1.ManagedCluster, before string) error {
	s.mu.Lock()
	s.claims++
	s.catchingUp[wire.ClusterName(stored.Name)] = s.claims
	s.mu.Unlock()
	written, err := fleet.Patch(ctx, stored, holderPatch(stored, &s.cfg.Hub))
	if written == nil || err != nil {
		return err
	}
	s.cfg.Logger.Info("cluster claimed", "cluster", stored.Name, "heldBefore", before)
	s.wakeRun()
	return nil
}

// release removes the hub's name from a ManagedCluster. If that fails because the hub selects the cluster
// again, a claim still waits for the caches.
func (s *Shard) release(ctx context.Context, fleet Fleet, stored *clusterv1.ManagedCluster) error {
	name := wire.ClusterName(stored.Name)
	fleet.ClusterLost(name)
	_, err := fleet.Patch(ctx, stored, holderPatch(stored, nil))
	if err == nil {
		s.cfg.Logger.Info("cluster let go", "cluster", name)
	}
	return err
}

// holderPatch returns the merge patch that names the hub that holds cluster; nil for none. It applies to
// this resource version only.
func holderPatch(cluster *clusterv1.ManagedCluster, hub *string) any {
	return map[string]any{"metadata": map[string]any{
		"resourceVersion": cluster.ResourceVersion, "annotations": map[string]any{clusterv1.HubAnnotationKey: hub},
	}}
}

// Run begins to serve the clusters that were claimed, until ctx ends, once the cache of works holds all
// that the hub before has written: an agent may hold a work that the watch events have not shown yet, which
// must not be taken for a deleted one. It costs one list of metadata of all works for the clusters that were
// claimed meanwhile.
func (s *Shard) Run(ctx context.Context, fleet Fleet) {
	if s == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		claims := s.claimed()
		if len(claims) == 0 {
			continue
		}
		if !s.cfg.CatchUpWorks(ctx) {
			return
		}
		for name, claim := range claims {
			s.caughtUp(name, claim)
			if s.stored(name) != nil && s.Serves(name) {
				s.cfg.Logger.Info("cluster gained", "cluster", name)
				fleet.ClusterGained(name)
			}
		}
	}
}

// wakeRun has [Shard.Run] look at the clusters that were claimed.
func (s *Shard) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// isCatchingUp reports whether a cluster was claimed, and is not served yet.
func (s *Shard) isCatchingUp(name wire.ClusterName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.catchingUp[name] != 0
}

// caughtUp notes that the caches hold what was written before a claim. The cluster may have been let go and
// claimed again meanwhile.
func (s *Shard) caughtUp(name wire.ClusterName, claim int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.catchingUp[name] == claim {
		delete(s.catchingUp, name)
	}
}

// forgetClaim forgets that a cluster was claimed.
func (s *Shard) forgetClaim(name wire.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.catchingUp, name)
}

// claimed returns the clusters that the hub holds since it claimed them, and does not serve yet, with the
// numbers of the claims.
func (s *Shard) claimed() map[wire.ClusterName]int {
	s.mu.Lock()
	claims := maps.Clone(s.catchingUp)
	s.mu.Unlock()
	maps.DeleteFunc(claims, func(name wire.ClusterName, _ int) bool {
		stored := s.stored(name)
		return stored == nil || !s.Holds(stored)
	})
	return claims
}

// waits notes whether a cluster that the hub selects is held by another one, and reports whether that
// is to be reported now: once.
func (s *Shard) waits(name wire.ClusterName, waiting bool, now time.Time) (report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since, known := s.waiting[name]
	switch {
	case !waiting:
		delete(s.waiting, name)
	case !known:
		s.waiting[name] = now
	case !since.IsZero() && now.Sub(since) >= contendedAfter:
		s.waiting[name] = time.Time{}
		return true
	}
	return false
}

// contended returns the number of clusters that were reported and are still held by another hub.
func (s *Shard) contended() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, since := range s.waiting {
		if since.IsZero() {
			n++
		}
	}
	return n
}

// reportContended reports a cluster that another hub does not let go.
func (s *Shard) reportContended(cluster *clusterv1.ManagedCluster, holder string, waiting bool) {
	if !s.waits(wire.ClusterName(cluster.Name), waiting, time.Now()) {
		return
	}
	s.cfg.Logger.Error("another hub serves a cluster that this hub selects", "cluster", cluster.Name, "hub", s.cfg.Hub, "other", holder,
		"advice", "change --cluster-selector of one of them, so that no cluster is selected by two hubs")
	s.cfg.Recorder.Eventf(cluster, corev1.EventTypeWarning, clusterv1.EventTwoHubs,
		"The hub %s serves the cluster and does not let it go, and the hub %s selects it: change --cluster-selector of one of them if both select it", holder, s.cfg.Hub)
}
