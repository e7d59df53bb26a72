package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
)

// TestReplicaSet has a ManifestWorkReplicaSet keep its work, and the work its objects, while the
// cluster or the broker is absent: within the grace of the taint, and beyond it.
func TestReplicaSet(t *testing.T) {
	w := newWorld(t, 1, func(w *world) { w.hubArgs = []string{"--auto-register", "--auto-accept", "--unreachable-grace=4s"} })
	client := workclient.NewForConfigOrDie(hubPlane.REST())
	clusters, namespace := client.ClusterV1().ManagedClusters(), hubPlane.Namespace(t, "sets")
	t.Cleanup(func() { _ = clusters.Delete(context.WithoutCancel(t.Context()), w.cluster, deleted) })

	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	_, err := client.ClusterV1beta1().Placements(namespace).Create(t.Context(), placement, create)
	kit.NoError(t, err)
	sets := client.WorkV1alpha1().ManifestWorkReplicaSets(namespace)
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "of-set"}}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all"}}
	template, want := w.spec("of-set", "template", "a", "b")
	set.Spec.ManifestWorkTemplate = template
	_, err = sets.Create(t.Context(), set, create)
	kit.NoError(t, err)
	var ofSet string // its name has a hash of the placement's
	kit.Eventually(t, "the set has created its work", func() error {
		list, err := w.works.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d works", len(list.Items))
		}
		if err == nil {
			ofSet = list.Items[0].Name
		}
		return err
	})
	w.want[ofSet], w.ofSets[ofSet] = want, true
	w.during(time.Second, 6)
	w.converge()

	for _, index := range []int{killAgent, stopAgent, stopBroker} {
		t.Log(faults[index].name)
		faults[index].run(w)
		w.converge()
	}

	t.Log("stop the agent until its cluster has the taint and is not selected")
	w.stopAgent()
	w.during(time.Second, 4)
	kit.Await(t, clusters, w.cluster, "has the taint", func(c *clusterv1.ManagedCluster) bool {
		return c != nil && len(c.Spec.Taints) == 1 && c.Spec.Taints[0].Key == clusterv1.ManagedClusterTaintUnreachable
	})
	kit.Await(t, client.ClusterV1beta1().Placements(namespace), "all", "selects no cluster", func(p *clusterv1beta1.Placement) bool {
		return p.Status.NumberOfSelectedClusters == 0
	})
	w.startAgent()
	w.converge()
	kit.Eventually(t, "the cluster is selected again", func() error {
		p, err := client.ClusterV1beta1().Placements(namespace).Get(t.Context(), "all", metav1.GetOptions{})
		if err == nil && (p.Status.NumberOfSelectedClusters != 1 || !meta.IsStatusConditionTrue(p.Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)) {
			err = errors.New("it is not")
		}
		return err
	})
	w.converge()

	kit.NoError(t, sets.Delete(t.Context(), "of-set", deleted))
	w.forget(ofSet)
	w.end()
}
