package replicaset

import (
	"fmt"
	"maps"
	"slices"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// watch has changes ask for passes over the sets that they concern. Nothing is
// done in the handlers but that.
func (c *Controller) watch() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	works, err := c.cfg.Works.AddEventHandler(c.workChanged)
	if err != nil {
		return nil, err
	}
	stops = append(stops, func() { c.cfg.Works.RemoveEventHandler(works) })
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{c.source.sets, handler(c.setChanged)},
		{c.source.placements, handler(c.placementChanged)},
		{c.source.decisions, handler(c.decisionChanged)},
		{c.source.clusters, handler(c.clusterChanged)},
	} {
		registration, err := watched.informer.AddEventHandler(watched.handler)
		if err != nil {
			stop()
			return nil, fmt.Errorf("watch for ManifestWorkReplicaSets: %w", err)
		}
		stops = append(stops, func() { _ = watched.informer.RemoveEventHandler(registration) })
	}
	return stop, nil
}

// handler tells changed of an object as it was before and is after; nil when it
// is new or gone.
func handler[T any](changed func(before, after *T)) cache.ResourceEventHandler {
	of := func(object any) *T {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		typed, _ := object.(*T)
		return typed
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(nil, of(object)) },
		UpdateFunc: func(before, after any) { changed(of(before), of(after)) },
		DeleteFunc: func(object any) { changed(of(object), nil) },
	}
}

// setChanged passes over changes of the status, which come from here.
func (c *Controller) setChanged(before, after *workv1alpha1.ManifestWorkReplicaSet) {
	switch {
	case after == nil && before == nil:
	case after == nil:
		c.changed(nameOf(before))
	case before == nil || before.UID != after.UID || before.Generation != after.Generation ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) || !maps.Equal(before.Labels, after.Labels) ||
		!slices.Equal(before.Finalizers, after.Finalizers):
		c.changed(nameOf(after))
	}
}

func (c *Controller) placementChanged(before, after *clusterv1beta1.Placement) {
	switch {
	case after == nil && before == nil:
	case after == nil:
		c.changedPlacement(nameOf(before).String())
	case before == nil || before.UID != after.UID || before.Generation != after.Generation ||
		before.Status.NumberOfSelectedClusters != after.Status.NumberOfSelectedClusters ||
		!apiequality.Semantic.DeepEqual(before.Status.DecisionGroups, after.Status.DecisionGroups):
		c.changedPlacement(nameOf(after).String())
	}
}

func (c *Controller) decisionChanged(before, after *clusterv1beta1.PlacementDecision) {
	if before != nil && after != nil && maps.Equal(before.Labels, after.Labels) &&
		slices.Equal(before.Status.Decisions, after.Status.Decisions) {
		return
	}
	for _, decision := range []*clusterv1beta1.PlacementDecision{before, after} {
		if decision != nil {
			keys, _ := placementOfDecision(decision)
			for _, key := range keys {
				c.changedPlacement(key)
			}
		}
	}
}

func (c *Controller) changedPlacement(placement string) {
	for _, set := range c.source.setsOf(placement) {
		c.changed(set)
	}
}

// clusterChanged looks for a cluster that has gone away or come back, or that is
// accepted or refused.
func (c *Controller) clusterChanged(before, after *clusterv1.ManagedCluster) {
	cluster := after
	if after == nil {
		cluster = before
	}
	if cluster == nil {
		return
	}
	if before != nil && after != nil && presenceOf(before) == presenceOf(after) {
		return
	}
	placements := make(map[string]bool)
	objects, _ := c.source.decisions.GetIndexer().ByIndex(byCluster, cluster.Name)
	for _, object := range objects {
		keys, _ := placementOfDecision(object)
		for _, key := range keys {
			placements[key] = true
		}
	}
	for placement := range placements {
		c.changedPlacement(placement)
	}
}

// workChanged looks for what plans and summaries depend on.
func (c *Controller) workChanged(before, after *workv1.ManifestWork) {
	if before != nil && after != nil && before.UID == after.UID && before.Generation == after.Generation &&
		maps.Equal(before.Labels, after.Labels) && before.DeletionTimestamp.Equal(after.DeletionTimestamp) &&
		apiequality.Semantic.DeepEqual(before.Status.Conditions, after.Status.Conditions) {
		return
	}
	sets := make(map[types.NamespacedName]bool)
	for _, work := range []*workv1.ManifestWork{before, after} {
		if work != nil {
			if set, ok := setOf(work.Labels[workv1.ReplicaSetLabelKey]); ok {
				sets[set] = true
			}
		}
	}
	for set := range sets {
		c.changed(set)
	}
}
