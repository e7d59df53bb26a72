package fields

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestDefaultStorageClass: which StorageClass is the default one stays as the cluster has it. Other annotations are those of the manifest.
func TestDefaultStorageClass(t *testing.T) {
	class := func(annotations map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": "fast", "annotations": annotations},
		}}
	}
	desired := class(map[string]any{defaultClassAnnotation: "true", "team": "a"})
	for name, c := range map[string]struct {
		live        map[string]any
		differences int
		want        string
	}{
		"as declared":              {map[string]any{defaultClassAnnotation: "true", "team": "a"}, 0, "true"},
		"the cluster has another":  {map[string]any{defaultClassAnnotation: "false", "team": "a"}, 0, "false"},
		"another annotation, too":  {map[string]any{defaultClassAnnotation: "false", "team": "b"}, 1, "false"},
		"the cluster has not said": {map[string]any{"team": "a"}, 1, "true"},
	} {
		live := class(c.live)
		rules := RulesFor(desired, live)
		if got := rules.Differences(desired, live, nil); len(got) != c.differences {
			t.Errorf("%s: differences %v, want %d", name, got, c.differences)
		}
		next := live.DeepCopy()
		rules.Merge(next, live, desired, nil, false)
		if got := next.GetAnnotations(); got[defaultClassAnnotation] != c.want || got["team"] != "a" {
			t.Errorf("%s: merged to %v", name, got)
		}
	}
}
