package v1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
)

// Every field of a cluster, under the name that users write.
func TestManagedClusterText(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC))
	cluster := clusterv1.ManagedCluster{
		Spec: clusterv1.ManagedClusterSpec{
			HubAcceptsClient: true, LeaseDurationSeconds: 60,
			Taints: []clusterv1.Taint{
				{Key: "gpu", Value: "true", Effect: clusterv1.TaintEffectNoSelectIfNew, TimeAdded: at},
				{Key: "gpu", Effect: clusterv1.TaintEffectNoSelect},
			},
			ManagedClusterClientConfigs: []clusterv1.ClientConfig{{URL: "https://a", CABundle: []byte("ca")}},
		},
		Status: clusterv1.ManagedClusterStatus{
			Capacity:      clusterv1.ResourceList{"cpu": resource.MustParse("4")},
			Allocatable:   clusterv1.ResourceList{"cpu": resource.MustParse("3500m")},
			Version:       clusterv1.ManagedClusterVersion{Kubernetes: "v1.36.3"},
			ClusterClaims: []clusterv1.ManagedClusterClaim{{Name: "region", Value: "west"}},
		},
	}
	got, err := json.Marshal(cluster.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{},"spec":{"hubAcceptsClient":true,"leaseDurationSeconds":60,"taints":[` +
		`{"key":"gpu","value":"true","effect":"NoSelectIfNew","timeAdded":"2026-02-03T04:05:06Z"},` +
		`{"key":"gpu","effect":"NoSelect"}],` +
		`"managedClusterClientConfigs":[{"url":"https://a","caBundle":"Y2E="}]},` +
		`"status":{"capacity":{"cpu":"4"},"allocatable":{"cpu":"3500m"},"version":{"kubernetes":"v1.36.3"},` +
		`"clusterClaims":[{"name":"region","value":"west"}]}}`
	if string(got) != want {
		t.Errorf("ManagedCluster:\n got %s\nwant %s", got, want)
	}
	var back clusterv1.ManagedCluster
	if err := kubejson.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(cluster, back, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
		t.Errorf("ManagedCluster read back (-want +got):\n%s", diff)
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]runtime.Object{
		"ManagedCluster": &clusterv1.ManagedCluster{}, "ManagedClusterList": &clusterv1.ManagedClusterList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if want := clusterv1.GroupVersion.WithKind(kind); err != nil || len(kinds) != 1 || kinds[0] != want {
			t.Errorf("kinds of %T are %v (%v), want %v", object, kinds, err, want)
		}
	}
}
