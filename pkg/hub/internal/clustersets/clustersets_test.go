package clustersets_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/test/kit"
	"github.com/workwire/workwire/test/kit/controlplane"
)

var plane *controlplane.Plane

func TestMain(m *testing.M) { controlplane.Main(m, controlplane.Planes{Hub: &plane}) }

func TestNewReportsEveryFault(t *testing.T) {
	for _, err := range []error{
		func() error { _, err := clustersets.NewSets(clustersets.Config{}); return err }(),
		func() error { _, err := clustersets.NewBindingStatus(clustersets.Config{}); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), "Informers is required") || !strings.Contains(err.Error(), "Client is required") {
			t.Errorf("%v", err)
		}
	}
}

// TestStatus runs both controllers: the sets default and global come, also again; the status of sets
// counts their clusters, and that of bindings follows the sets.
func TestStatus(t *testing.T) {
	client := versioned.NewForConfigOrDie(plane.REST())
	start(t, client)
	sets, namespace := client.ClusterV1beta2().ManagedClusterSets(), plane.Namespace(t, "binds")
	const kind = clusterv1beta2.ManagedClusterSetConditionEmpty
	says := func(name, message string) {
		t.Helper()
		kit.Await(t, sets, name, "says "+message, func(s *clusterv1beta2.ManagedClusterSet) bool {
			if s == nil {
				return false
			}
			c := meta.FindStatusCondition(s.Status.Conditions, kind)
			return c != nil && c.Message == message && (c.Status == metav1.ConditionTrue) == (message == "No ManagedCluster selected")
		})
	}
	says("default", "No ManagedCluster selected")
	says("global", "No ManagedCluster selected")

	bindings := client.ClusterV1beta2().ManagedClusterSetBindings(namespace)
	binding := &clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}
	binding.Spec.ClusterSet = "shops"
	_, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{})
	kit.NoError(t, err)
	bound := func(reason string) {
		t.Helper()
		kit.Await(t, bindings, "shops", reason, func(b *clusterv1beta2.ManagedClusterSetBinding) bool {
			c := meta.FindStatusCondition(b.Status.Conditions, clusterv1beta2.ClusterSetBindingBoundType)
			return c != nil && c.Reason == reason
		})
	}
	bound("ClusterSetNotFound")
	shops, err := sets.Create(t.Context(), &clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "shops"}}, metav1.CreateOptions{})
	kit.NoError(t, err)
	if shops.Spec.ClusterSelector.SelectorType != clusterv1beta2.ExclusiveClusterSetLabel {
		t.Errorf("the default selector is %+v", shops.Spec)
	}
	bound("ClusterSetBound")
	for _, name := range []string{"berlin", "paris"} {
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "berlin" {
			cluster.Labels = map[string]string{clusterv1.ClusterSetLabelKey: "shops"}
		}
		_, err := client.ClusterV1().ManagedClusters().Create(t.Context(), cluster, metav1.CreateOptions{})
		kit.NoError(t, err)
		t.Cleanup(func() {
			_ = client.ClusterV1().ManagedClusters().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
		})
	}
	says("shops", "1 ManagedClusters selected")
	says("default", "1 ManagedClusters selected")
	says("global", "2 ManagedClusters selected")

	patch := func(set, text string) {
		t.Helper()
		_, err := sets.Patch(t.Context(), set, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	label := func(cluster, text string) {
		t.Helper()
		_, err := client.ClusterV1().ManagedClusters().Patch(t.Context(), cluster, types.MergePatchType, []byte(`{"metadata": {"labels": `+text+`}}`), metav1.PatchOptions{})
		kit.NoError(t, err)
	}
	label("paris", `{"`+clusterv1.ClusterSetLabelKey+`": "shops"}`) // it moves
	says("shops", "2 ManagedClusters selected")
	says("default", "No ManagedCluster selected")
	patch("shops", `{"spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": "prod"}}}}}`)
	says("shops", "No ManagedCluster selected")
	label("berlin", `{"env": "prod"}`)
	says("shops", "1 ManagedClusters selected")
	kit.NoError(t, client.ClusterV1().ManagedClusters().Delete(t.Context(), "berlin", metav1.DeleteOptions{}))
	says("shops", "No ManagedCluster selected")
	says("global", "1 ManagedClusters selected")

	kit.NoError(t, sets.Delete(t.Context(), "shops", metav1.DeleteOptions{}))
	bound("ClusterSetNotFound")
	kit.NoError(t, sets.Delete(t.Context(), "global", metav1.DeleteOptions{}))
	says("global", "1 ManagedClusters selected")
}

// start runs both controllers until the test ends.
func start(t *testing.T, client versioned.Interface) {
	t.Helper()
	informers := controller.NewInformers(controller.InformersConfig{Client: client, Logger: kit.Logger(t)})
	cfg := clustersets.Config{Informers: informers, Client: client, Logger: kit.Logger(t)}
	sets, err := clustersets.NewSets(cfg)
	kit.NoError(t, err)
	bindings, err := clustersets.NewBindingStatus(cfg)
	kit.NoError(t, err)
	kit.Run(t, "informers", informers.Run)
	kit.Run(t, "sets", sets.Run)
	kit.Run(t, "bindings", bindings.Run)
}
