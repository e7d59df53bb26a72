package fleet

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// With several hubs, a work is judged by the Leases of the hub that serves its cluster.
func TestLeasesOfSeveralHubs(t *testing.T) {
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	of := func(hub string) *clusterv1.ManagedCluster {
		return &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusterv1.HubAnnotationKey: hub}}}
	}
	s := &Snapshot{Presence: lease("oldest"), hubs: map[string]hubLeases{"a": {presence: lease("a")}, "b": {presence: lease("b")}}}
	for _, c := range []struct {
		cluster *clusterv1.ManagedCluster
		want    string
	}{{of("a"), "a"}, {of("b"), "b"}, {of(""), "oldest"}, {nil, "oldest"}} {
		if presence, _ := s.leasesOf(c.cluster); presence.Name != c.want {
			t.Errorf("%s, want %s", presence.Name, c.want)
		}
	}
	if presence, _ := s.leasesOf(of("unknown")); presence != nil {
		t.Errorf("the Lease %s of another hub", presence.Name)
	}
}
