package integration

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/workwire/workwire/deploy/crds"
	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/pkg/agent"
	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// TestPlacementByClaim: the hub shows what a cluster says of itself, and a Placement selects by that.
func TestPlacementByClaim(t *testing.T) {
	t.Parallel()
	w := withBroker(t)
	w.StartHub(func(c *hub.Config) { c.AutoRegister, c.AutoAccept = true, true })
	namespace, err := kubernetes.NewForConfigOrDie(spokePlane.REST()).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
	kit.NoError(t, err)
	client, name := w.Client(), string(w.Clusters[0])
	hubPlane.CreateNamespace(t, "by-claim")
	_, err = client.ClusterV1beta2().ManagedClusterSetBindings("by-claim").Create(t.Context(), &clusterv1beta2.ManagedClusterSetBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterv1beta2.GlobalSet}, Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: clusterv1beta2.GlobalSet},
	}, metav1.CreateOptions{})
	kit.NoError(t, err)
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "by-id"}}
	placement.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		ClaimSelector: clusterv1beta1.ClusterClaimSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "id.k8s.io", Operator: metav1.LabelSelectorOpIn, Values: []string{string(namespace.UID)}},
		}},
	}}}
	_, err = client.ClusterV1beta1().Placements("by-claim").Create(t.Context(), placement, metav1.CreateOptions{})
	kit.NoError(t, err)
	chosen := func(want int) func(*clusterv1beta1.Placement) bool {
		return func(p *clusterv1beta1.Placement) bool {
			return p != nil && len(p.Status.Conditions) > 0 && p.Status.NumberOfSelectedClusters == int32(want)
		}
	}
	kit.Await(t, client.ClusterV1beta1().Placements("by-claim"), "by-id", "selects none", chosen(0))

	kit.NoError(t, install.CRDs(t.Context(), spokePlane.REST(), crds.SpokeOptional()...))
	claim := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"value": "large"}}}
	claim.SetGroupVersionKind(clusterv1alpha1.GroupVersion.WithKind("ClusterClaim"))
	claim.SetName("store-size")
	claims := dynamic.NewForConfigOrDie(spokePlane.REST()).Resource(clusterv1alpha1.GroupVersion.WithResource("clusterclaims"))
	_, err = claims.Create(t.Context(), claim, metav1.CreateOptions{})
	kit.NoError(t, err)
	t.Cleanup(func() { _ = claims.Delete(context.Background(), claim.GetName(), metav1.DeleteOptions{}) })
	large := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Name: "large"}}
	large.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: []string{
			`managedCluster.status.clusterClaims.exists(c, c.name == "store-size" && c.value == "large")`,
		}},
	}}}
	_, err = client.ClusterV1beta1().Placements("by-claim").Create(t.Context(), large, metav1.CreateOptions{})
	kit.NoError(t, err)
	kit.Await(t, client.ClusterV1beta1().Placements("by-claim"), "large", "selects none", chosen(0))

	w.StartAgent(0, func(c *agent.Config) { c.AboutInterval = time.Minute })
	w.StartAgent(1) // on another cluster, and says nothing
	cluster := kit.Await(t, client.ClusterV1().ManagedClusters(), name, "shows what it says", func(c *clusterv1.ManagedCluster) bool {
		return c != nil && len(c.Status.ClusterClaims) > 0
	})
	if cluster.Status.Version.Kubernetes == "" {
		t.Errorf("status %+v", cluster.Status)
	}
	kit.Await(t, client.ClusterV1beta1().Placements("by-claim"), "by-id", "selects the cluster", chosen(1))
	kit.Await(t, client.ClusterV1beta1().Placements("by-claim"), "large", "selects it by its ClusterClaim", chosen(1))
	kit.Await(t, client.ClusterV1beta1().PlacementDecisions("by-claim"), "by-id-decision-1", "has the cluster alone", func(d *clusterv1beta1.PlacementDecision) bool {
		return d != nil && len(d.Status.Decisions) == 1 && d.Status.Decisions[0].ClusterName == name
	})
}
