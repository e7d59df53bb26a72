package strategy

import (
	"bytes"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// fieldOwners are the fields of an object by who wrote them last.
type fieldOwners struct {
	ours   *fieldpath.Set
	others *fieldpath.Set
}

// whose says who an entry of managedFields is about.
type whose int

const (
	nobodys whose = iota
	ours
	others
)

// ownersOf reads the managedFields of an object. An entry that it can not read
// counts as nobody's.
func ownersOf(live *unstructured.Unstructured, classify func(metav1.ManagedFieldsEntry) whose) fieldOwners {
	owners := fieldOwners{ours: fieldpath.NewSet(), others: fieldpath.NewSet()}
	for _, entry := range live.GetManagedFields() {
		set, ok := fieldsOf(entry)
		if !ok {
			continue
		}
		switch classify(entry) {
		case ours:
			owners.ours = owners.ours.Union(set)
		case others:
			owners.others = owners.others.Union(set)
		}
	}
	return owners
}

func fieldsOf(entry metav1.ManagedFieldsEntry) (*fieldpath.Set, bool) {
	if entry.FieldsV1 == nil {
		return nil, false
	}
	set := fieldpath.NewSet()
	return set, set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())) == nil
}

// ownership is what somebody has of one field: the field itself, what is below it,
// or both. Of one that is written as a whole, only the field itself.
type ownership struct {
	itself bool
	below  *fieldpath.Set // nil: nothing
}

func (o ownership) none() bool { return !o.itself && o.below == nil }

// at gives the ownership of a part.
func (o ownership) at(element fieldpath.PathElement) ownership {
	if o.below == nil {
		return ownership{}
	}
	below, _ := o.below.Children.Get(element)
	return ownership{itself: o.below.Members.Has(element), below: below}
}

func fieldElement(key string) fieldpath.PathElement { return fieldpath.PathElement{FieldName: &key} }

// item gives the name by which the item of a list is owned.
func (o ownership) item(item any, index int) (fieldpath.PathElement, bool) {
	var found fieldpath.PathElement
	if o.below == nil {
		return found, false
	}
	ok := false
	visit := func(element fieldpath.PathElement) {
		if !ok && names(element, item, index, false) {
			found, ok = element, true
		}
	}
	o.below.Members.Iterate(visit)
	o.below.Children.Iterate(visit)
	return found, ok
}

// names says whether an element of a path means an item of a list. A lenient look
// lets it lack some of its keys: they have defaults.
func names(element fieldpath.PathElement, item any, index int, lenient bool) bool {
	switch {
	case element.Key != nil:
		fields, isMap := item.(map[string]any)
		some := false
		for _, key := range *element.Key {
			field, has := fields[key.Name]
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

// indexOf finds the item of a list that an element means; -1 if there is none.
func indexOf(list []any, element fieldpath.PathElement) int {
	for i, item := range list {
		if names(element, item, i, true) {
			return i
		}
	}
	return -1
}

// withKeys gives an item with the keys that name it.
func withKeys(item any, element fieldpath.PathElement) any {
	fields, isMap := item.(map[string]any)
	if !isMap || element.Key == nil {
		return item
	}
	for _, key := range *element.Key {
		if fields[key.Name] == nil {
			fields[key.Name] = key.Value.Unstructured()
		}
	}
	return fields
}

// solely gives a copy of those parts of a value that are ours and of nobody else.
func solely(live any, mine, theirs ownership) (any, bool) {
	if mine.none() {
		return nil, false
	}
	if mine.below == nil { // a single value, or one that is written as a whole
		return runtime.DeepCopyJSONValue(live), theirs.none()
	}
	switch live := live.(type) {
	case map[string]any:
		part := map[string]any{}
		for key, field := range live {
			element := fieldElement(key)
			if kept, ok := solely(field, mine.at(element), theirs.at(element)); ok {
				part[key] = kept
			}
		}
		return part, len(part) > 0
	case []any:
		var part []any
		for i, item := range live {
			element, named := mine.item(item, i)
			if kept, ok := solely(item, mine.at(element), theirs.at(element)); named && ok {
				part = append(part, withKeys(kept, element))
			}
		}
		return part, len(part) > 0
	}
	return nil, false
}

// Rivals gives the field managers, other than own, that wrote the fields of an
// object which differences names by JSON pointers; sorted, each once. Live has its
// managedFields. A field that was removed has nobody who wrote it.
func Rivals(live *unstructured.Unstructured, differences []string, own string) []string {
	var rivals []string
	for _, entry := range live.GetManagedFields() {
		set, ok := fieldsOf(entry)
		if !ok || entry.Manager == own || slices.Contains(rivals, entry.Manager) {
			continue
		}
		for _, difference := range differences {
			tokens := strings.Split(strings.TrimPrefix(difference, "/"), "/")
			if (ownership{below: set}).owns(live.Object, tokens) {
				rivals = append(rivals, entry.Manager)
				break
			}
		}
	}
	slices.Sort(rivals)
	return rivals
}

// owns says whether what the tokens of a JSON pointer lead to was written by the
// owner, at least in part.
func (o ownership) owns(live any, tokens []string) bool {
	for i, token := range tokens {
		var element fieldpath.PathElement
		switch parent := live.(type) {
		case map[string]any:
			key := pointerUnescapes.Replace(token)
			element, live = fieldElement(key), parent[key]
		case []any:
			at, ok := listIndex(token, len(parent))
			if !ok {
				return false
			}
			if element, ok = o.item(parent[at], at); !ok {
				return false
			}
			live = parent[at]
		default:
			return false
		}
		if o = o.at(element); o.none() {
			return false
		}
		if o.below == nil && i < len(tokens)-1 {
			return !reflect.DeepEqual(live, map[string]any{}) // written as a whole
		}
	}
	return true
}
