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
func (w *world) admitFinalizers() {
	w.t.Helper()
	policy := policies.Finalizers()
	policy.Policy.Name += "-" + w.namespace
	policy.Binding.Name, policy.Binding.Spec.PolicyName = policy.Policy.Name, policy.Policy.Name
	policy.Binding.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{
		MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.namespace},
	}}
	if err := install.Policies(w.t.Context(), plane.REST(), policy); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := install.RemovePolicies(context.Background(), plane.REST(), policy); err != nil {
			w.t.Error(err)
		}
	})
	// For seconds after a definition has been made, the API server refuses what a policy may have
	// to change.
	probe := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}
	probe.Spec.Workload.Manifests = []workv1.Manifest{manifest("probe", "1")}
	client := w.client.WorkV1().ManifestWorks(w.namespace)
	kit.Eventually(w.t, "the policy of finalizers is in force", func() error {
		made, err := client.Create(w.t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
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
	r := w.startHubWith(func(c *hub.Config) {
		c.Election, c.Controllers, c.AutoRegister = alone(), []string{hub.ControllerClusters}, true
	})
	w.awaitConnected()
	work := w.create("web")
	if !works.HasFinalizer(work) {
		t.Fatalf("created with the finalizers %v", work.Finalizers)
	}
	w.registerAgent(work.UID)
	w.accept(true)
	w.await("web", "applied", applied(work.Generation))
	w.delete("web")
	w.await("web", "gone", gone)
	want := map[string]int{"patch manifestworks": 1, "patch manifestworks/status": 1} // the finalizer taken, the status
	if got := r.requestCounts(w.namespace, "web"); !maps.Equal(got, want) {
		t.Errorf("requests %v, want %v", got, want)
	}
}
