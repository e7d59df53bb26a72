package clustersets

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/runtime/required"
)

// interval is the minimum time between two writes of the status of a set, which has the number of its
// clusters.
const interval = time.Second

// Config configures [Sets] and [BindingStatus].
type Config struct {
	// Informers provide ManagedClusters, ManagedClusterSets and ManagedClusterSetBindings; required.
	Informers *controller.Informers
	// Client creates sets and writes the status of sets and bindings; required.
	Client versioned.Interface
	// Logger gets a line about each set that is created and each failure; default slog.Default().
	Logger *slog.Logger
	// Queues creates the metrics of the queues; default none.
	Queues workqueue.MetricsProvider
}

func (cfg *Config) complete() error {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	return required.Fields(*cfg, "Informers", "Client")
}

// Sets serves ManagedClusterSets.
type Sets struct {
	*controller.Controller[string]
	cfg      Config
	sets     *controller.Cache[*clusterv1beta2.ManagedClusterSet]
	clusters *controller.Cache[*clusterv1.ManagedCluster]
}

// NewSets returns a controller. It does no I/O and starts nothing. It reports every fault of cfg.
func NewSets(cfg Config) (*Sets, error) {
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("clustersets: %w", err)
	}
	s := &Sets{cfg: cfg, sets: cfg.Informers.ManagedClusterSets(), clusters: cfg.Informers.ManagedClusters()}
	var err error
	s.Controller, err = controller.New(controller.Config[string]{
		Name: "clustersets", Reconcile: s.reconcile, Interval: interval, Queues: cfg.Queues, Logger: cfg.Logger,
		First: []string{clusterv1beta2.DefaultSet, clusterv1beta2.GlobalSet},
		Watches: []controller.Watch{
			controller.On(s.clusters, s.clusterChanged),
			controller.On(s.sets, func(before, after *clusterv1beta2.ManagedClusterSet) { s.Add(cmp.Or(after, before).Name) }),
		},
	})
	return s, err
}

// clusterChanged queues the sets that a cluster has joined or left. A change of its labels costs one comparison per set.
func (s *Sets) clusterChanged(before, after *clusterv1.ManagedCluster) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) {
		return
	}
	for _, set := range s.sets.All() {
		rule := NewSet(set)
		was, is := before != nil && rule.Has(before.Labels), after != nil && rule.Has(after.Labels)
		if was != is {
			s.Add(set.Name)
		}
	}
}

// count returns the number of clusters of a set, by one pass over all.
func (s *Sets) count(set *clusterv1beta2.ManagedClusterSet) (n int) {
	rule := NewSet(set)
	for _, cluster := range s.clusters.All() {
		if rule.Has(cluster.Labels) {
			n++
		}
	}
	return n
}

// reconcile writes the status of a set. It creates the sets that every hub has.
func (s *Sets) reconcile(ctx context.Context, name string) (time.Duration, error) {
	client := s.cfg.Client.ClusterV1beta2().ManagedClusterSets()
	set, ok := s.sets.Latest(types.NamespacedName{Name: name})
	if !ok {
		builtIn := builtInSet(name)
		if builtIn == nil {
			return 0, nil
		}
		created, err := client.Create(ctx, builtIn, metav1.CreateOptions{})
		switch {
		case apierrors.IsAlreadyExists(err):
			return 0, nil // its event queues it again
		case err != nil:
			return 0, fmt.Errorf("create ManagedClusterSet %s: %w", name, err)
		}
		s.sets.Created(created)
		s.cfg.Logger.Info("cluster set created", "set", name)
		return 0, nil
	}
	changed := set.DeepCopy()
	if set.DeletionTimestamp != nil || !meta.SetStatusCondition(&changed.Status.Conditions, emptyCondition(set.Generation, s.count(set))) {
		return 0, nil
	}
	written, err := client.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("update status of ManagedClusterSet %s: %w", name, err)
	}
	s.sets.Wrote(written)
	return 0, nil
}

// builtInSet returns a set that every hub has; nil for other names.
func builtInSet(name string) *clusterv1beta2.ManagedClusterSet {
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	selector := &set.Spec.ClusterSelector
	switch name {
	case clusterv1beta2.DefaultSet:
		selector.SelectorType = clusterv1beta2.ExclusiveClusterSetLabel
	case clusterv1beta2.GlobalSet:
		selector.SelectorType, selector.LabelSelector = clusterv1beta2.LabelSelector, &metav1.LabelSelector{}
	default:
		return nil
	}
	return set
}

// emptyCondition returns the condition ClusterSetEmpty of a set with that many clusters.
func emptyCondition(generation int64, clusters int) metav1.Condition {
	c := metav1.Condition{
		Type: clusterv1beta2.ManagedClusterSetConditionEmpty, Status: metav1.ConditionTrue, ObservedGeneration: generation,
		Reason: clusterv1beta2.ReasonNoClusterMatched, Message: "No ManagedCluster selected",
	}
	if clusters > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, clusterv1beta2.ReasonClustersSelected
		c.Message = fmt.Sprintf("%d ManagedClusters selected", clusters)
	}
	return c
}
