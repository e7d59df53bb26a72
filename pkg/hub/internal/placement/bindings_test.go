package placement_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/test/kit"
)

// createSet creates an exclusive set, which must be named after the environment.
func (e *env) createSet(name string) {
	e.Helper()
	set := &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := e.client.ClusterV1beta2().ManagedClusterSets().Create(e.Context(), set, metav1.CreateOptions{})
	kit.NoError(e, err)
	e.Cleanup(func() {
		_ = e.client.ClusterV1beta2().ManagedClusterSets().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

func (e *env) bind(set string) {
	e.Helper()
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: set}}
	binding.Spec.ClusterSet = set
	_, err := e.client.ClusterV1beta2().ManagedClusterSetBindings(e.namespace).Create(e.Context(), binding, metav1.CreateOptions{})
	kit.NoError(e, err)
}

func (e *env) unbind(set string) {
	e.Helper()
	kit.NoError(e, e.client.ClusterV1beta2().ManagedClusterSetBindings(e.namespace).Delete(e.Context(), set, metav1.DeleteOptions{}))
}

func inSet(name string) func(*clusterv1.ManagedCluster) {
	return label(clusterv1.ClusterSetLabelKey, name)
}

// says waits until the conditions of a placement have these reasons.
func (e *env) says(name, satisfied, bound string) {
	e.Helper()
	kit.Eventually(e, "conditions of "+name, func() error {
		conditions := e.placement(name).Status.Conditions
		for kind, want := range map[string]string{
			clusterv1beta1.PlacementConditionSatisfied: satisfied, clusterv1beta1.PlacementConditionBound: bound,
		} {
			if c := meta.FindStatusCondition(conditions, kind); c == nil && want != "" || c != nil && c.Reason != want {
				return fmt.Errorf("%s is %+v, want %q", kind, c, want)
			}
		}
		return nil
	})
}

// TestBoundSets: a placement chooses only from the sets that are bound to its namespace, and of those
// from the ones that it names; it follows sets, bindings and labels.
func TestBoundSets(t *testing.T) {
	e := newEnv(t)
	e.startWith(nil, true)
	shops, offices := e.namespace+"-shops", e.namespace+"-offices"
	e.createCluster("a", inSet(shops))
	e.createCluster("b", inSet(offices))
	e.createCluster("c")
	e.createPlacement("all")
	e.createPlacement("named", func(p *clusterv1beta1.Placement) { p.Spec.ClusterSets = []string{offices} })
	e.await("all", "0/:")
	e.says("all", "NoManagedClusterSetBindings", "NoManagedClusterSetBindings")

	e.bind(shops) // there is no such set yet
	e.createSet(shops)
	e.await("all", "0/: a")
	e.says("all", "AllDecisionsScheduled", "ClusterSetsBound")
	e.says("named", "NoIntersection", "NoIntersection")
	e.await("named", "0/:")

	e.createSet(offices)
	e.bind(offices)
	e.await("all", "0/: a b")
	e.await("named", "0/: b")
	e.updateCluster("b", inSet(shops))
	e.await("named", "0/:")
	e.says("named", "AllManagedClusterSetsEmpty", "AllManagedClusterSetsEmpty")
	e.await("all", "0/: a b")
	e.updateCluster("c", inSet(offices))
	e.await("named", "0/: c")
	e.unbind(shops)
	e.await("all", "0/: c")
	kit.NoError(t, e.client.ClusterV1beta2().ManagedClusterSets().Delete(t.Context(), offices, metav1.DeleteOptions{}))
	e.await("all", "0/:")
	e.says("all", "NoManagedClusterSetBindings", "NoManagedClusterSetBindings")
}

// TestDecisionsOlderThanSets: a hub that begins to require bindings deselects nothing, until a set with
// clusters is bound. From then on the placement follows its sets.
func TestDecisionsOlderThanSets(t *testing.T) {
	e := newEnv(t)
	old := e.start(nil)
	e.createCluster("a")
	e.createCluster("b")
	e.createPlacement("old")
	e.await("old", "0/: a b")
	e.says("old", "AllDecisionsScheduled", "")
	old.stop()

	shops := e.namespace + "-shops"
	e.createCluster("c")
	c := e.startWith(nil, true)
	e.says("old", "NoManagedClusterSetBindings", "DecisionsKept")
	e.await("old", "0/: a b")
	if got := c.writes(e.namespace); len(got) != 1 || got[0].String() != "update placements/status" {
		t.Errorf("it wrote %v", got)
	}
	kit.True(t, "the metric counts it", func() bool { return c.metric("workwire_hub_placement_unbound_placements") == 1 })
	e.createPlacement("new")
	e.await("new", "0/:")

	e.createSet(shops)
	e.bind(shops)
	e.says("old", "AllManagedClusterSetsEmpty", "DecisionsKept")
	e.await("old", "0/: a b")
	e.updateCluster("a", inSet(shops))
	e.await("old", "0/: a")
	e.says("old", "AllDecisionsScheduled", "ClusterSetsBound")
	e.unbind(shops)
	e.await("old", "0/:")
	e.says("old", "NoManagedClusterSetBindings", "NoManagedClusterSetBindings")
}
