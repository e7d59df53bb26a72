// Package tally counts the works of a hub by state and by group of clusters, and knows since when the
// oldest pending one waits.
//
// Counts follow watch events, each at the cost of two looks at the state of one work. Nothing is kept
// of a work unless it is pending. A group is the value of a label of ManagedClusters; groups are bounded,
// so that metrics are.
package tally

import (
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
	// Served reports whether works of a cluster count. It must not block; required.
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
	pending  map[types.UID]waiting
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
	cluster    wire.ClusterName
	generation int64
	since      time.Time
}

// New returns a tally. It does no I/O and starts nothing. It reports every fault of cfg, and fails when
// the metrics are registered already.
func New(cfg Config) (*Tally, error) {
	if err := required.Fields(cfg, "Works", "Served"); err != nil {
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
	return &Tally{cfg: cfg, now: time.Now, clusters: make(map[string]*cluster), pending: make(map[types.UID]waiting)}
}

// Run counts until ctx ends; it returns nil then. It must be called once.
func (t *Tally) Run(ctx context.Context) error {
	watches := []controller.Watch{controller.On(t.cfg.Works.Cache, t.workChanged)}
	if t.cfg.ManagedClusters != nil && t.cfg.GroupLabel != "" {
		watches = append(watches, controller.On(t.cfg.ManagedClusters, t.clusterChanged))
	}
	if err := controller.Follow(ctx, func() {}, watches...); err != nil {
		return fmt.Errorf("tally: %w", err)
	}
	return nil
}

// workChanged handles a watch event of a work.
func (t *Tally) workChanged(before, after *workv1.ManifestWork) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if before != nil {
		t.count(before.Namespace, workstate.PhaseOf(before), -1)
		if after == nil || after.UID != before.UID {
			delete(t.pending, before.UID)
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
		delete(t.pending, after.UID)
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
	if w, ok := t.pending[work.UID]; ok && w.generation == work.Generation {
		return
	}
	w := waiting{cluster: wire.ClusterName(work.Namespace), generation: work.Generation, since: t.now()}
	// A hub before this one may have seen the spec.
	if d := work.Status.Delivery; d != nil && d.Generation == work.Generation && d.AcceptedTime != nil && d.AcceptedTime.Time.Before(w.since) {
		w.since = d.AcceptedTime.Time
	}
	t.pending[work.UID] = w
}

var (
	worksDescription = prometheus.NewDesc("workwire_hub_works_by_state",
		"ManifestWorks by state, as the dashboard has them, and by group of their clusters, see --metrics-cluster-group-label.", []string{"state", "group"}, nil)
	oldestDescription = prometheus.NewDesc("workwire_hub_oldest_pending_seconds",
		"How long the oldest pending ManifestWork has waited for the answer of its cluster; 0 if there is none.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (t *Tally) Describe(ch chan<- *prometheus.Desc) { ch <- worksDescription; ch <- oldestDescription }

// Collect implements [prometheus.Collector]. It costs one pass over the clusters, and over the pending works.
func (t *Tally) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	groups := t.groups()
	now := t.now()
	oldest := now
	for _, w := range t.pending {
		if w.since.Before(oldest) && t.cfg.Served(w.cluster) {
			oldest = w.since
		}
	}
	t.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(oldestDescription, prometheus.GaugeValue, now.Sub(oldest).Seconds())
	for group, states := range groups {
		for _, state := range workstate.Phases() {
			ch <- prometheus.MustNewConstMetric(worksDescription, prometheus.GaugeValue, float64(states[state]), string(state), group)
		}
	}
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
