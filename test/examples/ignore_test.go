package examples

import (
	"testing"
)

const theirData = `{"data":{"k":"theirs"}}`

func setData(value string) func(map[string]any) {
	return func(spec map[string]any) { set(spec, value, "workload", "manifests", 0, "data", "k") }
}

func TestIgnoreFieldsOnSpokePresent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("ignore-fields/on-spoke-present.yaml", func(spec map[string]any) {
		w.watchField(spec, configMapsResource, "some-configmap", ".data.k")
	})
	w.until(name, "is applied", applied, available, fedBack(0, `seen="v"`))
	w.patch(configMapsResource, "some-configmap", theirData)
	w.until(name, "has seen their change", applied, fedBack(0, `seen="theirs"`))
	w.edit(name, setData("ours"))
	w.until(name, "leaves the data alone", applied, available, fedBack(0, `seen="theirs"`))
	// Nor does it take it away when something else changes.
	w.edit(name, func(spec map[string]any) {
		set(spec, map[string]any{"team": "a"}, "workload", "manifests", 0, "metadata", "labels")
	})
	w.has(configMapsResource, "some-configmap", "a", "metadata", "labels", "team")
	w.until(name, "leaves the data alone", applied, available, fedBack(0, `seen="theirs"`))
	w.has(configMapsResource, "some-configmap", "theirs", "data", "k")

	w.remove(configMapsResource, "some-configmap")
	w.has(configMapsResource, "some-configmap", "ours", "data", "k")
}

func TestIgnoreFieldsOnSpokeChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.apply("ignore-fields/on-spoke-change.yaml", func(spec map[string]any) {
		w.watchField(spec, configMapsResource, "some-configmap", ".data.k")
	})
	w.until(name, "is applied", applied, available, fedBack(0, `seen="v"`))
	w.patch(configMapsResource, "some-configmap", theirData)
	w.until(name, "has seen their change", applied, fedBack(0, `seen="theirs"`))
	w.edit(name, func(spec map[string]any) {
		w.addManifest(spec, "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: NAMESPACE}}")
	})
	w.until(name, "leaves the data alone", applied, available, fedBack(0, `seen="theirs"`))
	w.has(configMapsResource, "some-configmap", "theirs", "data", "k")

	w.edit(name, setData("ours"))
	w.has(configMapsResource, "some-configmap", "ours", "data", "k")
	w.until(name, "is applied", applied, available, fedBack(0, `seen="ours"`))
}
