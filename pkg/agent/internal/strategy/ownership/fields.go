// Package ownership answers who owns an object and its fields: works, by owner references to their
// AppliedManifestWork, and field managers, by managedFields. It does no I/O.
package ownership

import (
	"bytes"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
)

// Fields are the owners of the fields of an object or of a part of it: this agent, other field
// managers, or both.
type Fields struct {
	ours, others share
}

// share is what somebody owns of one part: the field itself, what is below it, or both. Of a field
// that is written as a whole it is the field itself only.
type share struct {
	itself bool
	below  *fieldpath.Set // nil: nothing
}

func (s share) none() bool { return !s.itself && s.below == nil }

func (s share) at(element fieldpath.PathElement) share {
	if s.below == nil {
		return share{}
	}
	below, _ := s.below.Children.Get(element)
	return share{itself: s.below.Members.Has(element), below: below}
}

// Updated returns the owners of an object's fields where the agent's fields are those that it wrote
// as one of managers. Entries of the agent in another API version count as nobody's, so that their
// fields are kept.
func Updated(live *unstructured.Unstructured, managers []string) Fields {
	return read(live, func(entry metav1.ManagedFieldsEntry) (ours, others bool) {
		ours = slices.Contains(managers, entry.Manager) && entry.Subresource == ""
		return ours && entry.APIVersion == live.GetAPIVersion(), !ours
	})
}

// Applied returns the owners of an object's fields where the agent's fields are those that manager
// wrote by server-side apply.
func Applied(live *unstructured.Unstructured, manager string) Fields {
	return read(live, func(entry metav1.ManagedFieldsEntry) (ours, others bool) {
		ours = entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
		return ours, !ours
	})
}

// read reads the managedFields of an object. An unreadable entry counts as nobody's.
func read(live *unstructured.Unstructured, classify func(metav1.ManagedFieldsEntry) (ours, others bool)) Fields {
	f := Fields{ours: share{below: fieldpath.NewSet()}, others: share{below: fieldpath.NewSet()}}
	for _, entry := range live.GetManagedFields() {
		set, ok := fieldSet(entry)
		if !ok {
			continue
		}
		switch ours, others := classify(entry); {
		case ours:
			f.ours.below = f.ours.below.Union(set)
		case others:
			f.others.below = f.others.below.Union(set)
		}
	}
	return f
}

func fieldSet(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, bool) {
	if entry.FieldsV1 == nil {
		return nil, false
	}
	set := fieldpath.NewSet()
	return set, set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) == nil
}

// Owned reports whether the agent owns the part, at least in part.
func (f Fields) Owned() bool { return !f.ours.none() }

// Shared reports whether others own the part, at least in part.
func (f Fields) Shared() bool { return !f.others.none() }

// Atomic reports whether the agent owns nothing below the part: it is a single value, or written as
// a whole.
func (f Fields) Atomic() bool { return f.ours.below == nil }

// At returns the owners of a field or item.
func (f Fields) At(element fieldpath.PathElement) Fields {
	return Fields{ours: f.ours.at(element), others: f.others.at(element)}
}

// Field returns the owners of the field of that name.
func (f Fields) Field(key string) Fields { return f.At(fieldElement(key)) }

func fieldElement(key string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &key} }

// Item returns the path element by which the agent owns an item of a list.
func (f Fields) Item(item any, index int) (fieldpath.PathElement, bool) {
	return f.ours.item(item, index)
}

func (s share) item(item any, index int) (fieldpath.PathElement, bool) {
	var found fieldpath.PathElement
	if s.below == nil {
		return found, false
	}
	ok := false
	visit := func(element fieldpath.PathElement) {
		if !ok && identifies(element, item, index, false) {
			found, ok = element, true
		}
	}
	s.below.Members.Iterate(visit)
	s.below.Children.Iterate(visit)
	return found, ok
}

// identifies reports whether a path element is that of an item of a list. If lenient, the item may
// lack some of its keys, which have defaults.
func identifies(element fieldpath.PathElement, item any, index int, lenient bool) bool {
	switch {
	case element.Key != nil:
		object, isMap := item.(map[string]any)
		some := false
		for _, key := range *element.Key {
			field, has := object[key.Name]
			if has && !value.Equals(key.Value, value.NewValueInterface(field)) || !has && !lenient {
				return false
			}
			some = some || has
		}
		return isMap && some
	case element.Value != nil:
		return value.Equals(*element.Value, value.NewValueInterface(item))
	case element.Index != nil:
		return *element.Index == index
	}
	return false
}

// IndexOf returns the index of the item of a list that a path element identifies, or -1.
func IndexOf(list []any, element fieldpath.PathElement) int {
	for i, item := range list {
		if identifies(element, item, i, true) {
			return i
		}
	}
	return -1
}

// SetKeys adds to an item of a list the keys that identify it, and returns it.
func SetKeys(item any, element fieldpath.PathElement) any {
	object, isMap := item.(map[string]any)
	if !isMap || element.Key == nil {
		return item
	}
	for _, key := range *element.Key {
		if object[key.Name] == nil {
			object[key.Name] = key.Value.Unstructured()
		}
	}
	return object
}

// ExclusivelyOwned returns a copy of those parts of a live value that the agent owns and nobody
// else, and whether there are any.
func (f Fields) ExclusivelyOwned(live any) (any, bool) {
	if !f.Owned() {
		return nil, false
	}
	if f.Atomic() {
		return runtime.DeepCopyJSONValue(live), !f.Shared()
	}
	switch live := live.(type) {
	case map[string]any:
		part := map[string]any{}
		for key, field := range live {
			if owned, ok := f.Field(key).ExclusivelyOwned(field); ok {
				part[key] = owned
			}
		}
		return part, len(part) > 0
	case []any:
		var part []any
		for i, item := range live {
			element, known := f.Item(item, i)
			if !known {
				continue
			}
			if owned, ok := f.At(element).ExclusivelyOwned(item); ok {
				part = append(part, SetKeys(owned, element))
			}
		}
		return part, len(part) > 0
	}
	return nil, false
}

// ConflictingManagers returns the field managers other than own that wrote the fields of an object
// which JSON pointers name; sorted, each once. Live has its managedFields. A field that was removed
// has no manager.
func ConflictingManagers(live *unstructured.Unstructured, pointers []string, own string) []string {
	var managers []string
	for _, entry := range live.GetManagedFields() {
		set, ok := fieldSet(entry)
		if !ok || entry.Manager == own || slices.Contains(managers, entry.Manager) {
			continue
		}
		if slices.ContainsFunc(pointers, func(pointer string) bool {
			tokens, err := fields.ParsePointer(pointer)
			return err == nil && (share{below: set}).includes(live.Object, tokens)
		}) {
			managers = append(managers, entry.Manager)
		}
	}
	slices.Sort(managers)
	return managers
}

// includes reports whether the share includes at least a part of what the tokens of a JSON pointer
// lead to.
func (s share) includes(live any, tokens []string) bool {
	for i, token := range tokens {
		var element fieldpath.PathElement
		switch parent := live.(type) {
		case map[string]any:
			element, live = fieldElement(token), parent[token]
		case []any:
			at, ok := fields.ListIndex(token, len(parent))
			if !ok {
				return false
			}
			if element, ok = s.item(parent[at], at); !ok {
				return false
			}
			live = parent[at]
		default:
			return false
		}
		if s = s.at(element); s.none() {
			return false
		}
		if s.below == nil && i < len(tokens)-1 {
			return !reflect.DeepEqual(live, map[string]any{}) // written as a whole
		}
	}
	return true
}
