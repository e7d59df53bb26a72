package clusters_test

import (
	"maps"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub/internal/clusters"
	"github.com/workwire/workwire/pkg/source/delivery"
)

// TestHubAbsence: while the hub has no connection, no cluster is said to be available. What was
// absent before stays so, and each cluster that is heard from again costs one write more.
func TestHubAbsence(t *testing.T) {
	w := newWorld(t)
	f := w.start(func(c *clusters.Config) { c.HubAbsence, c.UnreachableGrace = time.Millisecond, time.Hour })
	because := func(reason string) func(*clusterv1.ManagedCluster) bool {
		return func(cluster *clusterv1.ManagedCluster) bool {
			if cluster == nil {
				return false
			}
			c := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
			return c != nil && c.Reason == reason && (c.Status == metav1.ConditionTrue) == (reason == clusterv1.ReasonAvailable)
		}
	}
	f.Observe(delivery.ConnectionChanged{Up: true})
	for _, name := range []string{"stays", "gone"} {
		f.says(name, "a", true)
		w.await(name, "available", because(clusterv1.ReasonAvailable))
	}
	f.says("gone", "a", false)
	w.await("gone", "disconnected", because(clusterv1.ReasonDisconnected))
	f.settle()
	before := f.requested("stays")["patch managedclusters/status"]

	f.Observe(delivery.ConnectionChanged{Up: false})
	cluster := w.await("stays", "unknown", because(clusterv1.ReasonHubDisconnected))
	if len(cluster.Spec.Taints) > 0 {
		t.Errorf("taints %+v", cluster.Spec.Taints)
	}
	f.Observe(delivery.ConnectionChanged{Up: true})
	f.says("stays", "a", true)
	w.await("stays", "available again", because(clusterv1.ReasonAvailable))
	f.settle()
	if got := f.requested("stays"); got["patch managedclusters/status"] != before+2 {
		t.Errorf("requests %v, want %d patches of the status", maps.Clone(got), before+2)
	}
	if got := w.get("gone"); !because(clusterv1.ReasonDisconnected)(got) {
		t.Errorf("the cluster that was gone before is %+v", got.Status.Conditions)
	}
}
