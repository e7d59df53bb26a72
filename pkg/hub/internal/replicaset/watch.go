package replicaset

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/overrides"
	"github.com/workwire/workwire/pkg/wire"
)

// Indexes. A value of byPlacement is "<namespace>/<name>" of a placement that a set refers to, a
// value of byPlacementLabel that of the placement that a decision belongs to. A value of byCluster
// is a cluster of a decision.
const (
	byPlacement      = "placement"
	byPlacementLabel = "placementLabel"
	byCluster        = "cluster"
)

func (c *Controller) addIndexers() error {
	return errors.Join(
		c.sets.AddIndexers(cache.Indexers{byPlacement: indexPlacementRefs, byPlan: indexPlan}),
		c.overrides.AddIndexers(cache.Indexers{bySet: indexSet}),
		c.decisions.AddIndexers(cache.Indexers{byPlacementLabel: indexPlacementLabel, byCluster: indexClusters}),
	)
}

func indexPlacementRefs(object any) ([]string, error) {
	set, ok := object.(*workv1alpha1.ManifestWorkReplicaSet)
	if !ok {
		return nil, nil
	}
	keys := make([]string, 0, len(set.Spec.PlacementRefs))
	for _, ref := range set.Spec.PlacementRefs {
		keys = append(keys, set.Namespace+"/"+ref.Name)
	}
	return keys, nil
}

func indexPlacementLabel(object any) ([]string, error) {
	if decision, ok := object.(*clusterv1beta1.PlacementDecision); ok {
		if name := decision.Labels[clusterv1beta1.PlacementLabel]; name != "" {
			return []string{decision.Namespace + "/" + name}, nil
		}
	}
	return nil, nil
}

func indexClusters(object any) ([]string, error) {
	decision, ok := object.(*clusterv1beta1.PlacementDecision)
	if !ok {
		return nil, nil
	}
	names := make([]string, 0, len(decision.Status.Decisions))
	for _, cluster := range decision.Status.Decisions {
		names = append(names, cluster.ClusterName)
	}
	return names, nil
}

// setChanged ignores changes of the status, which only this controller writes.
func (c *Controller) setChanged(before, after *workv1alpha1.ManifestWorkReplicaSet) {
	if before == nil || after == nil || steered(before, after) || !slices.Equal(before.Finalizers, after.Finalizers) {
		c.Add(controller.KeyOf(cmp.Or(after, before)))
	}
}

// steered reports whether somebody has changed a set in what its reconcile goes by.
func steered(before, after *workv1alpha1.ManifestWorkReplicaSet) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) || !maps.Equal(before.Labels, after.Labels) ||
		slices.ContainsFunc(steering, func(key string) bool { return before.Annotations[key] != after.Annotations[key] })
}

// steering are the annotations of a set that a reconcile reads and that people write, or remove.
var steering = []string{
	workv1alpha1.AllowRemovalsAnnotationKey, workv1alpha1.RolloutSuccessAnnotationKey,
	workv1.PausedAnnotationKey, workv1.DependsOnAnnotationKey, workwirev1alpha1.RevisionHistoryLimitAnnotationKey,
	workv1alpha1.RolloutPlanAnnotationKey, workwirev1alpha1.ApprovalsAnnotationKey,
	workv1alpha1.OnFailureAnnotationKey, workwirev1alpha1.ServedRevisionAnnotationKey,
	workv1alpha1.PreviewAnnotationKey, workv1alpha1.PreviewLimitAnnotationKey, workv1alpha1.PreviewedAnnotationKey,
}

func (c *Controller) placementChanged(before, after *clusterv1beta1.Placement) {
	if before == nil || after == nil || before.UID != after.UID || before.Generation != after.Generation || decided(before) != decided(after) ||
		before.Status.NumberOfSelectedClusters != after.Status.NumberOfSelectedClusters ||
		!apiequality.Semantic.DeepEqual(before.Status.DecisionGroups, after.Status.DecisionGroups) {
		c.addSetsOf(nil, controller.KeyOf(cmp.Or(after, before)).String())
	}
}

func (c *Controller) decisionChanged(before, after *clusterv1beta1.PlacementDecision) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) &&
		slices.Equal(before.Status.Decisions, after.Status.Decisions) {
		return
	}
	for _, decision := range []*clusterv1beta1.PlacementDecision{before, after} {
		if decision != nil {
			placements, _ := indexPlacementLabel(decision)
			c.addSetsOf(nil, placements...)
		}
	}
}

// addSetsOf queues the sets that refer to the placements and that concerned, if it is not nil, says yes to.
func (c *Controller) addSetsOf(concerned func(*workv1alpha1.ManifestWorkReplicaSet) bool, placements ...string) {
	for _, placement := range placements {
		for _, set := range c.sets.List(byPlacement, placement) {
			if concerned == nil || concerned(set) {
				c.Add(controller.KeyOf(set))
			}
		}
	}
}

// reachChanged queues the sets of a namespace whose bound cluster sets may have changed.
func (c *Controller) reachChanged(namespace string) {
	for _, set := range c.sets.List(cache.NamespaceIndex, namespace) {
		c.Add(controller.KeyOf(set))
	}
}

// clusterChanged queues the sets of a cluster whose presence or labels have changed, and those that may have
// kept a work of an absent cluster if what placements select it by has changed, or that have overrides if what
// these may read has.
func (c *Controller) clusterChanged(before, after *clusterv1.ManagedCluster) {
	same := before != nil && after != nil && presenceOf(before) == presenceOf(after) && maps.Equal(before.Labels, after.Labels)
	if !same || presenceOf(after).away && !selectedAlike(before, after) {
		for work := range c.cfg.Works.OfCluster(wire.ClusterName(cmp.Or(after, before).Name)) {
			c.addSetOf(work)
		}
	}
	var concerned func(*workv1alpha1.ManifestWorkReplicaSet) bool // nil: all
	if same {
		overridden := c.overrides.Len() > 0 && !overrides.SameCluster(before, after)
		planned := c.plans.Len() > 0 && !apiequality.Semantic.DeepEqual(before.Status.ClusterClaims, after.Status.ClusterClaims)
		if !overridden && !planned {
			return
		}
		concerned = func(set *workv1alpha1.ManifestWorkReplicaSet) bool {
			return overridden && len(c.overrides.List(bySet, controller.KeyOf(set).String())) > 0 || planned && set.Annotations[workv1alpha1.RolloutPlanAnnotationKey] != ""
		}
	}
	for _, decision := range c.decisions.List(byCluster, cmp.Or(after, before).Name) {
		placements, _ := indexPlacementLabel(decision)
		c.addSetsOf(concerned, placements...)
	}
}

// selectedAlike reports whether no placement distinguishes two states of a cluster.
func selectedAlike(a, b *clusterv1.ManagedCluster) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) && maps.Equal(a.Labels, b.Labels) &&
		apiequality.Semantic.DeepEqual(a.Spec, b.Spec) && apiequality.Semantic.DeepEqual(a.Status.ClusterClaims, b.Status.ClusterClaims)
}

// workChanged queues the sets of a work that has changed in a field that decide reads.
func (c *Controller) workChanged(before, after *workv1.ManifestWork) {
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation &&
		maps.Equal(before.Labels, after.Labels) && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
		apiequality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) && !c.tests(after) {
		return
	}
	for _, work := range []*workv1.ManifestWork{before, after} {
		if work != nil {
			c.addSetOf(work)
		}
	}
}

// addSetOf queues the set of a work; one that is queued already is not queued again.
func (c *Controller) addSetOf(work *workv1.ManifestWork) {
	if set, ok := workv1alpha1.ParseWorkLabel(work.Labels[workv1.ReplicaSetLabelKey]); ok {
		c.Add(set)
	}
}

// presenceOf returns the presence of a cluster. A cluster without the condition Available counts as
// connected, and one of which nobody knows, too: no rollout goes on without it.
func presenceOf(cluster *clusterv1.ManagedCluster) presence {
	p := presence{refused: !cluster.Spec.HubAcceptsClient}
	if available := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable); available != nil {
		p.away, p.since = clusterv1.IsAway(available), available.LastTransitionTime.Time
	}
	return p
}
