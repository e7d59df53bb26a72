// Package placement serves Placements: it chooses clusters for each Placement and writes them to
// PlacementDecisions.
//
// The choice is a pure function (schedule) of the Placement, the clusters, the previous choice and
// the time. How to write it is another pure function (planDecisions). Both change as little as
// possible: a cluster that stays chosen stays in its PlacementDecision, a cluster that comes or
// goes costs one write regardless of the number of clusters, and nothing is written that is stored
// already.
//
// A Placement chooses from the clusters of the ManagedClusterSets that are bound to its namespace.
// Decisions that are older than cluster sets stay unchanged until such a set is bound
// (keepsDecisions).
//
// All state is on the API server. A change of a cluster, or of its scores, causes a reconcile only of those
// Placements that evaluate it differently. Expressions are evaluated again only for clusters that have changed.
//
// Only one controller may serve the Placements of an API server. PlacementDecisions of another
// controller, with the label and the owner of a Placement, are adopted.
package placement

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/expression"
	"github.com/workwire/workwire/pkg/runtime/required"
	"github.com/workwire/workwire/pkg/runtime/walltime"
)

// interval is the minimum time between two reconciles of a Placement.
const interval = 100 * time.Millisecond

// Config configures a [Controller].
type Config struct {
	// Informers provide Placements, PlacementDecisions, ManagedClusters and AddOnPlacementScores; required.
	Informers *controller.Informers
	// Bindings decide which clusters a Placement may choose from, by its namespace; required.
	Bindings *clustersets.Bindings
	// Client writes PlacementDecisions and the status of Placements; required.
	Client versioned.Interface
	// Recorder gets an event on a Placement when its decisions change, and a warning when its spec
	// is invalid; required.
	Recorder record.EventRecorder
	// Logger gets a line about each change of decisions and each failure; default slog.Default().
	Logger *slog.Logger
	// Registerer gets the metrics workwire_hub_placement_*; default none.
	Registerer prometheus.Registerer
	// Queues creates the metrics of the queue; default none.
	Queues workqueue.MetricsProvider
}

// Controller serves Placements.
type Controller struct {
	*controller.Controller[types.NamespacedName]
	cfg        Config
	clock      *walltime.Clock // of the times of taints
	metrics    *metrics
	clusters   *clusterIndex
	usage      usage
	compiler   *expression.Compiler
	placements *controller.Cache[*clusterv1beta1.Placement]
	decisions  *controller.Cache[*clusterv1beta1.PlacementDecision]
}

// New returns a controller. It does no I/O and starts nothing. It reports every fault of cfg, and
// fails if the metrics are registered already.
func New(cfg Config) (*Controller, error) {
	if err := required.Fields(cfg, "Informers", "Bindings", "Client", "Recorder"); err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	compiler, err := newCompiler()
	if err != nil {
		return nil, fmt.Errorf("placement: create the CEL environment of selectors: %w", err)
	}
	c := &Controller{
		cfg: cfg, clock: walltime.New(), usage: usage{counts: make(map[string]int)}, compiler: compiler,
		placements: cfg.Informers.Placements(), decisions: cfg.Informers.PlacementDecisions(),
	}
	ofCluster := cfg.Informers.AddOnPlacementScores()
	c.clusters = newClusterIndex(func(cluster string) scores {
		byName := scores{}
		for _, s := range ofCluster.List(cache.NamespaceIndex, cluster) {
			byName[s.Name] = s
		}
		return byName
	})
	c.metrics = newMetrics(c.placements)
	c.Controller, err = controller.New(controller.Config[types.NamespacedName]{
		Name: "placements", Reconcile: c.reconcile, Interval: interval, Queues: cfg.Queues, Logger: cfg.Logger,
		Watches: append([]controller.Watch{
			controller.On(cfg.Informers.ManagedClusters(), c.clusterChanged),
			controller.On(ofCluster, c.scoreChanged),
			controller.On(c.placements, c.placementChanged),
			controller.On(c.decisions, c.decisionChanged),
		}, cfg.Bindings.Watch(c.reachChanged)...),
	})
	err = errors.Join(err, c.decisions.AddIndexers(cache.Indexers{byPlacement: indexByPlacement}),
		controller.Register(cfg.Registerer, append(c.metrics.gauges, c.metrics.evaluations, c.metrics.writes)...))
	if err != nil {
		return nil, fmt.Errorf("placement: %w", err)
	}
	return c, nil
}

func (c *Controller) clusterChanged(before, after *clusterv1.ManagedCluster) {
	var affected []types.NamespacedName
	if after != nil {
		affected = c.clusters.observe(after, time.Now())
	} else {
		affected = c.clusters.remove(before.Name, time.Now())
	}
	for _, key := range affected {
		c.Add(key)
	}
}

func (c *Controller) scoreChanged(before, after *clusterv1alpha1.AddOnPlacementScore) {
	for _, key := range c.clusters.scoreChanged(cmp.Or(after, before).Namespace, time.Now()) {
		c.Add(key)
	}
}

func (c *Controller) placementChanged(before, after *clusterv1beta1.Placement) {
	c.Add(controller.KeyOf(cmp.Or(after, before)))
}

// reachChanged evaluates the Placements of a namespace whose bound sets may have changed.
func (c *Controller) reachChanged(namespace string) {
	for _, p := range c.placements.List(cache.NamespaceIndex, namespace) {
		c.Add(controller.KeyOf(p))
	}
}

// rules returns the rules of a Placement, and sets those by which changes of clusters affect it: none if it is
// invalid. The caller reads the clusters afterwards, so that no change is missed.
func (c *Controller) rules(key types.NamespacedName, p *clusterv1beta1.Placement) (*rules, error) {
	known := c.clusters.expressionsOf(key)
	r, err := newRules(p, c.cfg.Bindings.Of(key.Namespace), func(text string) (*celExpression, error) {
		if known[text] == nil {
			e, err := compileExpression(c.compiler, text)
			if err != nil {
				return nil, err
			}
			known[text] = e
		}
		return known[text], nil
	})
	if err == nil {
		r.clock = c.clock
	}
	c.clusters.setRules(key, r)
	return r, err
}

func (c *Controller) decisionChanged(before, after *clusterv1beta1.PlacementDecision) {
	c.usage.observe(before, after)
	for _, key := range placementKeys(cmp.Or(after, before)) {
		c.Add(key)
	}
}
