package examples

import "testing"

// TestAutoscalerTakesReplicas has replicas in its work from the start: the API server does not
// record who scales a Deployment as long as nobody owns its replicas. It is in a file of its own so
// that it starts early: autoscalers look every 15 s.
func TestAutoscalerTakesReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	autoscaler := w.apply("resource-race/horizontal-pod-autoscaler.yaml")
	name := w.apply("resource-race/server-side-apply.yaml", withReplicas(1))
	w.until(autoscaler, "is applied", applied, available)
	w.until(name, "is applied", applied, available)
	w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")
	conflict := manifestFails(0, `Apply failed with 1 conflict: conflict with "kube-controller-manager" with subresource "scale"`, ".spec.replicas")
	w.until(name, "conflicts", available, conflict)

	w.edit(name, withReplicas(2))
	w.until(name, "conflicts", available, conflict)
	w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")
	w.edit(name, func(spec map[string]any) { delete(field(manifest(spec, 0), "spec").(map[string]any), "replicas") })
	w.until(name, "is applied", applied, available)
	w.has(deploymentsResource, "hello", int64(3), "spec", "replicas")
}
