package hub_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/deploy/install"
	"github.com/workwire/workwire/deploy/policies"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/test/kit"
)

// admitFinalizers puts the policy of finalizers in force for the world's cluster.
func (w *hubWorld) admitFinalizers() {
	w.Helper()
	policy := policies.Finalizers()
	policy.Policy.Name += "-" + w.namespace
	policy.Binding.Name, policy.Binding.Spec.PolicyName = policy.Policy.Name, policy.Policy.Name
	policy.Binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace},
	}}
	kit.NoError(w, install.Policies(w.Context(), plane.REST(), policy))
	w.Cleanup(func() {
		if err := install.RemovePolicies(context.Background(), plane.REST(), policy); err != nil {
			w.Error(err)
		}
	})
	// For seconds after a definition has been made, the API server refuses what a policy may have
	// to change.
	probe := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	probe.Spec.Workload.Manifests = []workv1.Manifest{manifest("probe", "1")}
	kit.Eventually(w, "the policy of finalizers is in force", func() error {
		made, err := w.works.Create(w.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !works.HasFinalizer(made) {
			err = errors.New("a work is created without the finalizer")
		}
		return err
	})
}

// TestFinalizerByPolicy: a work that the API server gives the finalizer costs the hub no request
// before it is published; and one for a cluster that is not accepted waits all the same.
func TestFinalizerByPolicy(t *testing.T) {
	w := newWorld(t)
	w.admitFinalizers()
	r := w.startHub(func(c *hub.Config) {
		c.Controllers, c.AutoRegister = []string{hub.ControllerClusters}, true
	})
	r.AwaitConnected()
	work := w.create("web")
	if !works.HasFinalizer(work) {
		t.Fatalf("created with the finalizers %v", work.Finalizers)
	}
	w.registerAgent(work.UID)
	w.accept(true)
	w.Applied(w.works, "web")
	w.Delete(w.works, "web")
	w.Gone(w.works, "web")
	want := map[string]int{"patch manifestworks": 1, "update manifestworks/status": 1} // the finalizer taken, the status
	if got := r.requestCounts(w.namespace, "web"); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}
