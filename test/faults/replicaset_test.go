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
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workclient "github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/test/kit"
)

// setWorld is a world with a ManifestWorkReplicaSet on all clusters, whose work changes only as the
// set does.
type setWorld struct {
	*world
	client    workclient.Interface
	namespace string // of the set "of-set" and the placement "all"
	ofSet     string // the name of its work
}

func newSetWorld(t *testing.T, hubArgs ...string) *setWorld {
	t.Helper()
	w := &setWorld{world: newWorld(t, 1, func(w *world) {
		w.hubArgs = append([]string{"--auto-register", "--auto-accept"}, hubArgs...)
	})}
	w.client, w.namespace = workclient.NewForConfigOrDie(w.Hub.REST()), w.Hub.Namespace(t, "sets")
	t.Cleanup(func() {
		_ = w.client.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(t.Context()), w.cluster, deleted)
	})
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: clusterv1beta2.GlobalSet}}
	binding.Spec.ClusterSet = clusterv1beta2.GlobalSet
	_, err := w.client.ClusterV1beta2().ManagedClusterSetBindings(w.namespace).Create(t.Context(), binding, create)
	kit.NoError(t, err)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "all"}}
	_, err = w.client.ClusterV1beta1().Placements(w.namespace).Create(t.Context(), placement, create)
	kit.NoError(t, err)
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "of-set"}}
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: "all"}}
	template, want := w.spec("of-set", "template", "a", "b")
	set.Spec.ManifestWorkTemplate = template
	_, err = w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).Create(t.Context(), set, create)
	kit.NoError(t, err)
	kit.Eventually(t, "the set has created its work", func() error {
		list, err := w.works.List(t.Context(), metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("there are %d works", len(list.Items))
		}
		if err == nil {
			w.ofSet = list.Items[0].Name // it has a hash of the placement's
		}
		return err
	})
	w.want[w.ofSet], w.ofSets[w.ofSet] = want, true
	w.during(time.Second, 6)
	w.converge()
	return w
}

// end deletes the set and all works.
func (w *setWorld) end() {
	w.Helper()
	kit.NoError(w, w.client.WorkV1alpha1().ManifestWorkReplicaSets(w.namespace).Delete(w.Context(), "of-set", deleted))
	w.forget(w.ofSet)
	w.world.end()
}

// TestAbsence has the agent or the broker away for longer than any grace and any keep-alive: no
// work and no object gets another UID.
func TestAbsence(t *testing.T) {
	if *away == 0 {
		t.Skip("runs with -away, for example -away=10m -timeout=30m")
	}
	for name, run := range map[string]func(w *world){
		"agent": func(w *world) {
			w.stopAgent()
			w.during(*away, 20)
			w.startAgent()
		},
		"broker": func(w *world) {
			kit.NoError(w, w.Broker.Stop())
			w.during(*away, 20)
			w.startBroker()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newSetWorld(t)
			run(w.world)
			w.converge()
			w.end()
		})
	}
}

// TestReplicaSet has a ManifestWorkReplicaSet keep its work, and the work its objects, while the
// cluster or the broker is absent: within the grace of the taint, and beyond it.
func TestReplicaSet(t *testing.T) {
	w := newSetWorld(t, "--unreachable-grace=2s")
	for _, index := range []int{killAgent, stopBroker} {
		t.Log(faults[index].name)
		faults[index].run(w.world)
		w.converge()
	}

	t.Log("stop the agent until its cluster has the taint and is not selected")
	w.stopAgent()
	w.during(time.Second, 4)
	kit.Await(t, w.client.ClusterV1().ManagedClusters(), w.cluster, "has the taint", func(c *clusterv1.ManagedCluster) bool {
		return c != nil && len(c.Spec.Taints) == 1 && c.Spec.Taints[0].Key == clusterv1.ManagedClusterTaintUnreachable
	})
	kit.Await(t, w.client.ClusterV1beta1().Placements(w.namespace), "all", "selects no cluster", func(p *clusterv1beta1.Placement) bool {
		return p.Status.NumberOfSelectedClusters == 0
	})
	w.startAgent()
	w.converge()
	kit.Eventually(t, "the cluster is selected again", func() error {
		p, err := w.client.ClusterV1beta1().Placements(w.namespace).Get(t.Context(), "all", metav1.GetOptions{})
		if err == nil && (p.Status.NumberOfSelectedClusters != 1 || !meta.IsStatusConditionTrue(p.Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)) {
			err = errors.New("it is not")
		}
		return err
	})
	w.converge()

	w.end()
}
