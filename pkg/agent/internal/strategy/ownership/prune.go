package ownership

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
)

// Prune removes from next, a copy of the live object, the fields that the agent owns exclusively
// and desired does not declare, and returns their JSON pointers, sorted. The API server restores
// those that have defaults. Lists that desired declares are left to the merge.
func (f Fields) Prune(next, desired *unstructured.Unstructured, rules *fields.Rules) []string {
	var pruned []string
	var root *fields.Pointer
	for key, live := range next.Object {
		if rules.Merged(key) {
			pruned = append(pruned, f.pruneField(next.Object, key, live, desired.Object[key], root.Key(key))...)
		}
	}
	slices.Sort(pruned)
	return pruned
}

// pruneField prunes the field key of in, to which at points. f is of in.
func (f Fields) pruneField(in map[string]any, key string, live, want any, at *fields.Pointer) []string {
	f = f.Field(key)
	if want == nil && f.ours.itself && !f.Shared() {
		delete(in, key)
		return []string{at.String()}
	}
	object, isMap := live.(map[string]any)
	wanted, wantsMap := want.(map[string]any)
	if !isMap || f.Atomic() || want != nil && !wantsMap {
		return nil
	}
	var pruned []string
	for name, value := range object {
		pruned = append(pruned, f.pruneField(object, name, value, wanted[name], at.Key(name))...)
	}
	if want == nil && len(object) == 0 && !f.Shared() {
		delete(in, key)
	}
	return pruned
}
