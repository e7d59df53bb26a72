package examples

import "testing"

// TestOrder: waves, hooks and a work that depends on another, created in the wrong order, come up.
func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hooks := w.apply("order/hooks.yaml")
	w.until(hooks, "waits", workIs("Applied", "Unknown", "WaitsForWork", "3 of 3 manifests are not applied yet. Waits for work waves is not on this cluster"))
	waves := w.apply("order/waves.yaml")
	w.until(waves, "comes up", applied, available)
	w.until(hooks, "comes up", applied, available)
}
