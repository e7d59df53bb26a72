package fields

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Shape returns a digest of which fields a manifest declares, whatever their values: two manifests
// of equal shape drop none of each other's fields. It leaves out metadata, and maps whose
// undeclared keys are differences anyway. It is empty if nothing is left.
func (r *Rules) Shape(desired *unstructured.Unstructured) string {
	declared := map[string]any{}
	for key, value := range desired.Object {
		if r.Merged(key) && value != nil {
			declared[key] = shape(value)
		}
	}
	if len(declared) == 0 {
		return ""
	}
	return Digest(declared)
}

// AppliedShape is Shape for server-side apply, which also removes labels and annotations that a
// manifest drops. Other metadata counts with its values.
func AppliedShape(desired *unstructured.Unstructured) string {
	declared, _ := shape(desired.Object).(map[string]any)
	metadata, _ := desired.Object["metadata"].(map[string]any)
	rest := maps.Clone(metadata)
	for _, key := range []string{"labels", "annotations"} {
		if rest[key] != nil {
			rest[key] = shape(rest[key])
		}
	}
	declared["metadata"] = rest
	return Digest(declared)
}

// shape returns value with nil in place of everything that is neither a map nor a list. A field
// that is null declares nothing.
func shape(value any) any {
	switch value := value.(type) {
	case map[string]any:
		declared := make(map[string]any, len(value))
		for key, field := range value {
			if field != nil {
				declared[key] = shape(field)
			}
		}
		return declared
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = shape(item)
		}
		return items
	}
	return nil
}

// Undone returns a digest of the declared values that differ from those of the live object, empty
// if none does. It is for an object that was just written: the API server stored other values.
func (r *Rules) Undone(desired, live *unstructured.Unstructured) string {
	found := r.compare(desired, live, nil)
	if len(found) == 0 {
		return ""
	}
	declared := make(map[string]any, len(found))
	for _, difference := range found {
		declared[difference.path] = difference.want
	}
	return Digest(declared)
}
