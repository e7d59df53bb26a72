// Package tally counts the works of a hub by state and by group of clusters, and knows since when the
// oldest pending one waits.
//
// Counts follow watch events, each at the cost of two looks at the state of one work. Nothing is kept
// of a work unless it is pending. A group is the value of a label of ManagedClusters; groups are bounded,
// so that metrics are.
package tally

import (
	"container/heap"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate"
)

const (
	// DefaultMaxGroups is the default of [Config.MaxGroups].
	DefaultMaxGroups = 20
	// OtherGroup is the group of clusters whose own group is beyond [Config.MaxGroups].
	OtherGroup = "other"
)

// Config configures a [Tally].
type Config struct {
	// Works are those of the hub; required.
	Works *works.Cache
	// ManagedClusters of the hub; nil if it does not keep any. All works are in one group then.
	ManagedClusters *controller.Cache[*clusterv1.ManagedCluster]
	// Served reports whether works of a cluster count. It must not block. Default: all do.
	Served func(wire.ClusterName) bool
	// GroupLabel is the label of ManagedClusters whose value is their group; empty for one group.
	GroupLabel string
	// MaxGroups is how many groups are told apart, the first ones of the alphabet; default 20.
	MaxGroups int
	// Registerer gets the metrics workwire_hub_works_by_state and workwire_hub_oldest_pending_seconds;
	// default none.
	Registerer prometheus.Registerer
}

// Tally counts works while it runs. It is safe for concurrent use.
type Tally struct {
	cfg Config
	now func() time.Time

	mu       sync.Mutex
	clusters map[string]*cluster
	pending  map[types.UID]*waiting
	oldest   byAge // of pending
}

// cluster is what is counted of a cluster.
type cluster struct {
	group  string
	known  bool // there is a ManagedCluster
	works  int
	states map[workstate.Phase]int
}

// waiting is a pending work.
type waiting struct {
	cluster    string
	uid        types.UID
	generation int64
	since      time.Time
	index      int // in Tally.oldest
}

// New returns a tally. It does no I/O and starts nothing. It reports every fault of cfg, and fails when
// the metrics are registered already.
func New(cfg Config) (*Tally, error) {
	if err := required.Fields(cfg, "Works"); err != nil {
		return nil, fmt.Errorf("tally: %w", err)
	}
	t := newTally(cfg)
	if err := controller.Register(cfg.Registerer, t); err != nil {
		return nil, fmt.Errorf("tally: %w", err)
	}
	return t, nil
}

func newTally(cfg Config) *Tally {
	if cfg.MaxGroups == 0 {
		cfg.MaxGroups = DefaultMaxGroups
	}
	if cfg.Served == nil {
		cfg.Served = func(wire.ClusterName) bool { return true }
	}
	return &Tally{cfg: cfg, now: time.Now, clusters: make(map[string]*cluster), pending: make(map[types.UID]*waiting)}
}

// Run counts until ctx ends; it returns nil then. It must be called once.
func (t *Tally) Run(ctx context.Context) error {
	if t.cfg.ManagedClusters != nil && t.cfg.GroupLabel != "" {
		following, err := t.cfg.ManagedClusters.AddEventHandler(t.clusterChanged)
		if err != nil {
			return fmt.Errorf("tally: watch ManagedClusters: %w", err)
		}
		defer t.cfg.ManagedClusters.RemoveEventHandler(following)
	}
	following, err := t.cfg.Works.AddEventHandler(t.workChanged)
	if err != nil {
		return fmt.Errorf("tally: watch ManifestWorks: %w", err)
	}
	defer t.cfg.Works.RemoveEventHandler(following)
	<-ctx.Done()
	return nil
}

// workChanged handles a watch event of a work.
func (t *Tally) workChanged(before, after *workv1.ManifestWork) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil {
		t.count(before.Namespace, workstate.PhaseOf(before), -1)
		if after == nil || after.UID != before.UID {
			t.drop(before.UID)
		}
	}
	if after == nil {
		return
	}
	state := workstate.PhaseOf(after)
	t.count(after.Namespace, state, 1)
	if state == workstate.PhasePending {
		t.follow(after)
	} else {
		t.drop(after.UID)
	}
}

// clusterChanged handles a watch event of a ManagedCluster.
func (t *Tally) clusterChanged(before, after *clusterv1.ManagedCluster) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if after == nil {
		c := t.ensure(before.Name)
		c.known, c.group = false, ""
		t.forget(before.Name, c)
		return
	}
	c := t.ensure(after.Name)
	c.known, c.group = true, after.Labels[t.cfg.GroupLabel]
}

// ensure returns what is counted of the cluster with name. t.mu is held, as for all below.
func (t *Tally) ensure(name string) *cluster {
	c, ok := t.clusters[name]
	if !ok {
		c = &cluster{states: make(map[workstate.Phase]int)}
		t.clusters[name] = c
	}
	return c
}

// forget removes c unless something of it is known.
func (t *Tally) forget(name string, c *cluster) {
	if !c.known && c.works == 0 {
		delete(t.clusters, name)
	}
}

func (t *Tally) count(name string, state workstate.Phase, n int) {
	c := t.ensure(name)
	c.works += n
	c.states[state] += n
	t.forget(name, c)
}

// follow notes that work is pending.
func (t *Tally) follow(work *workv1.ManifestWork) {
	w, ok := t.pending[work.UID]
	if ok && w.generation == work.Generation {
		return
	}
	if !ok {
		w = &waiting{uid: work.UID, cluster: work.Namespace}
		t.pending[work.UID] = w
		heap.Push(&t.oldest, w)
	}
	w.generation, w.since = work.Generation, t.now()
	// A hub before this one may have seen the spec.
	if d := work.Status.Delivery; d != nil && d.Generation == work.Generation && d.AcceptedTime != nil && d.AcceptedTime.Time.Before(w.since) {
		w.since = d.AcceptedTime.Time
	}
	heap.Fix(&t.oldest, w.index)
}

// drop notes that a work is not pending.
func (t *Tally) drop(uid types.UID) {
	if w, ok := t.pending[uid]; ok {
		heap.Remove(&t.oldest, w.index)
		delete(t.pending, uid)
	}
}

var (
	worksDescription = prometheus.NewDesc("workwire_hub_works_by_state",
		"ManifestWorks by state, as the dashboard has them, and by group of their clusters, see --metrics-cluster-group-label.", []string{"state", "group"}, nil)
	oldestDescription = prometheus.NewDesc("workwire_hub_oldest_pending_seconds",
		"How long the oldest pending ManifestWork has waited for the answer of its cluster; 0 if there is none.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (t *Tally) Describe(ch chan<- *prometheus.Desc) { ch <- worksDescription; ch <- oldestDescription }

// Collect implements [prometheus.Collector]. It costs one pass over the clusters, and over the pending
// works up to the oldest one that counts.
func (t *Tally) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	groups := t.groups()
	waited := 0.0
	if oldest := t.oldestServed(); oldest != nil {
		waited = max(0, t.now().Sub(oldest.since).Seconds())
	}
	t.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(oldestDescription, prometheus.GaugeValue, waited)
	for group, states := range groups {
		for _, state := range workstate.Phases() {
			ch <- prometheus.MustNewConstMetric(worksDescription, prometheus.GaugeValue, float64(states[state]), string(state), group)
		}
	}
}

// oldestServed returns the oldest pending work that counts, nil if there is none. Where all works count,
// it costs nothing.
func (t *Tally) oldestServed() (oldest *waiting) {
	for _, w := range t.oldest {
		if t.cfg.Served(wire.ClusterName(w.cluster)) && (oldest == nil || w.since.Before(oldest.since)) {
			oldest = w
		}
		if oldest == t.oldest[0] {
			break
		}
	}
	return oldest
}

// groups returns the numbers of works by state of each group: the first MaxGroups of the alphabet, the
// one without a name, and OtherGroup if there are more.
func (t *Tally) groups() map[string]map[workstate.Phase]int {
	all := map[string]map[workstate.Phase]int{"": {}}
	for name, c := range t.clusters {
		if !t.cfg.Served(wire.ClusterName(name)) {
			continue
		}
		if all[c.group] == nil {
			all[c.group] = map[workstate.Phase]int{}
		}
		for state, n := range c.states {
			all[c.group][state] += n
		}
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return name == "" })
	if len(names) <= t.cfg.MaxGroups {
		return all
	}
	other := map[workstate.Phase]int{}
	for _, name := range names[t.cfg.MaxGroups:] {
		for state, n := range all[name] {
			other[state] += n
		}
		delete(all, name)
	}
	for state, n := range all[OtherGroup] { // a group of that name
		other[state] += n
	}
	all[OtherGroup] = other
	return all
}

// byAge orders pending works, the oldest first; see [heap.Interface].
type byAge []*waiting

// Len implements [heap.Interface].
func (a byAge) Len() int { return len(a) }

// Less implements [heap.Interface].
func (a byAge) Less(i, j int) bool { return a[i].since.Before(a[j].since) }

// Swap implements [heap.Interface].
func (a byAge) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].index, a[j].index = i, j
}

// Push implements [heap.Interface].
func (a *byAge) Push(x any) {
	w := x.(*waiting)
	w.index = len(*a)
	*a = append(*a, w)
}

// Pop implements [heap.Interface].
func (a *byAge) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}
