package hub_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/test/kit"
)

// TestHubPresence: the Lease of the hub's presence is there once the hub is connected, and the next
// leader goes on with it. A hub without a broker says so of every cluster.
func TestHubPresence(t *testing.T) {
	w := newWorld(t)
	replica := func(identity string) *replica {
		return w.startHub(w.electing(identity), func(c *hub.Config) {
			c.HubAbsence = time.Millisecond
			c.Controllers, c.AutoRegister = []string{hub.ControllerClusters}, true
		})
	}
	core, err := kubernetes.NewForConfig(plane.REST())
	kit.NoError(t, err)
	held := func(identity string) {
		t.Helper()
		kit.Await(t, core.CoordinationV1().Leases(w.namespace), clusterv1.HubPresenceLeaseName, "held by "+identity, func(lease *coordinationv1.Lease) bool {
			return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") == identity && *lease.Spec.LeaseDurationSeconds == 60 && lease.Spec.RenewTime != nil
		})
	}
	first := replica("first")
	held("first")
	a := w.startAgent(nil)
	a.AwaitConnected(t)
	w.sendPresence(a, "1", true)
	available := func(reason string) func(*clusterv1.ManagedCluster) bool {
		return func(c *clusterv1.ManagedCluster) bool {
			condition := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable)
			return condition != nil && condition.Reason == reason
		}
	}
	w.managed("available", available("ManagedClusterAvailable"))
	w.Memory.Cut("hub1-hub")
	w.managed("unknown", available(clusterv1.ReasonHubDisconnected))
	first.Stop()
	replica("second")
	w.Memory.Restore("hub1-hub")
	held("second")
	w.sendPresence(a, "1", true)
	w.managed("available again", available("ManagedClusterAvailable"))
}
