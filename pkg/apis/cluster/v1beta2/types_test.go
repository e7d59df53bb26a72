package v1beta2_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
)

// Every field of a set and of a binding, under the name that users write.
func TestText(t *testing.T) {
	set := clusterv1beta2.ManagedClusterSet{}
	set.Spec.ClusterSelector = clusterv1beta2.ManagedClusterSelector{
		SelectorType: clusterv1beta2.LabelSelector, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
	}
	binding := clusterv1beta2.ManagedClusterSetBinding{Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: "shops"}}
	for want, object := range map[string]any{
		`{"metadata":{},"spec":{"clusterSelector":{"selectorType":"LabelSelector","labelSelector":{"matchLabels":{"env":"prod"}}}}}`: set,
		`{"metadata":{},"spec":{"clusterSet":"shops"}}`: binding,
	} {
		if text, err := kubejson.Marshal(object); err != nil || string(text) != want {
			t.Errorf("got %s, want %s (%v)", text, want, err)
		}
	}
}

func TestInstall(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1beta2.Install(scheme); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"ManagedClusterSet", "ManagedClusterSetList", "ManagedClusterSetBinding", "ManagedClusterSetBindingList"} {
		if !scheme.Recognizes(clusterv1beta2.GroupVersion.WithKind(kind)) {
			t.Errorf("%s is not registered", kind)
		}
	}
	if got := clusterv1beta2.Resource("managedclustersets").String(); got != "managedclustersets.cluster.open-cluster-management.io" {
		t.Error(got)
	}
}
