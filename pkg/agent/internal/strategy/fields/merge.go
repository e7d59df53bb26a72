package fields

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// merger writes the fields that a manifest declares into a copy of the live object.
type merger struct {
	rules   *Rules
	changed bool
}

// Merge writes the fields, labels and annotations that desired declares into next, a copy of live.
// It does not change the other objects. Previous is the manifest that was applied before, nil if it
// is not known. If it is another one (changed), live items of lists are kept only if both declare
// them alike.
func (r *Rules) Merge(next, live, desired, previous *unstructured.Unstructured, changed bool) {
	m := merger{rules: r, changed: changed}
	var before map[string]any
	if previous != nil {
		before = previous.Object
	}
	for key, want := range desired.Object {
		if r.Merged(key) {
			m.field(next.Object, want, before[key], key)
		}
	}
	for _, key := range r.exact {
		m.exact(next.Object, desired.Object[key], key)
	}
	if r.caBundles {
		keepCABundles(next.Object, live.Object)
	}
	r.mergeKeys(next, desired, "labels")
	r.mergeKeys(next, desired, "annotations")
}

// field sets one declared field.
func (m merger) field(next map[string]any, want, previous any, key string) {
	switch want := want.(type) {
	case nil:
		return
	case map[string]any:
		if live, ok := next[key].(map[string]any); ok {
			before, _ := previous.(map[string]any)
			for key, value := range want {
				m.field(live, value, before[key], key)
			}
			return
		}
	case []any:
		if live, ok := next[key].([]any); ok {
			before, _ := previous.([]any)
			if m.rules.allowsExtra(want) {
				next[key] = m.union(live, want, before, key)
			} else {
				next[key] = m.list(live, want, before, key)
			}
			return
		}
	}
	next[key] = runtime.DeepCopyJSONValue(want)
}

// exact sets a map that may hold declared and injected keys only.
func (m merger) exact(next map[string]any, want any, key string) {
	declared, isMap := want.(map[string]any)
	if want != nil && !isMap {
		next[key] = runtime.DeepCopyJSONValue(want)
		return
	}
	merged := make(map[string]any, len(declared))
	for name, value := range declared {
		if value != nil && !m.rules.injected[name] {
			merged[name] = value
		}
	}
	live, _ := next[key].(map[string]any)
	for name := range m.rules.injected {
		if value, ok := live[name]; ok {
			merged[name] = value
		} else if value, ok := declared[name]; ok && value != nil {
			merged[name] = value
		}
	}
	if len(merged) == 0 {
		delete(next, key)
		return
	}
	next[key] = merged
}

// list returns the declared items. A live item that holds all that is declared keeps the fields
// that the API server and others have added. An item that differs is written as declared, so that
// its former fields cannot contradict it.
func (m merger) list(live, want, previous []any, key string) []any {
	at := &Pointer{key: key}
	used := make([]bool, len(live))
	items := make([]any, len(want))
	for i, item := range want {
		items[i] = runtime.DeepCopyJSONValue(item)
		if m.changed && !slices.ContainsFunc(previous, func(before any) bool { return reflect.DeepEqual(before, item) }) {
			continue
		}
		for _, candidate := range candidates(i, len(live)) {
			if !used[candidate] && m.rules.contains(live[candidate], item, at) {
				items[i], used[candidate] = live[candidate], true
				break
			}
		}
	}
	return items
}

// candidates returns the indexes of a list, beginning with first.
func candidates(first, length int) []int {
	indexes := make([]int, 0, length)
	if first < length {
		indexes = append(indexes, first)
	}
	for i := range length {
		if i != first {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// union adds the declared items to the live ones. Items of the same name are merged; items that
// only previous declares are removed.
func (m merger) union(live, want, previous []any, key string) []any {
	at := &Pointer{key: key}
	items := slices.Clone(live)
	for _, before := range previous {
		if !slices.ContainsFunc(want, func(item any) bool { return sameItem(item, before) }) {
			items = slices.DeleteFunc(items, func(item any) bool { return m.rules.contains(item, before, at) })
		}
	}
	for _, item := range want {
		if slices.ContainsFunc(items, func(live any) bool { return m.rules.contains(live, item, at) }) {
			continue
		}
		if i := slices.IndexFunc(items, func(live any) bool { return sameItem(live, item) }); i >= 0 {
			holder := map[string]any{key: items[i]}
			m.field(holder, item, nil, key)
			items[i] = holder[key]
			continue
		}
		items = append(items, runtime.DeepCopyJSONValue(item))
	}
	return items
}

// sameItem reports whether two items of a list have the same name or, without names, are equal.
func sameItem(a, b any) bool {
	aName, aOK := itemName(a)
	bName, bOK := itemName(b)
	if aOK && bOK {
		return aName == bName
	}
	return reflect.DeepEqual(a, b)
}

func itemName(item any) (string, bool) {
	object, _ := item.(map[string]any)
	name, ok := object["name"].(string)
	return name, ok
}

// mergeKeys writes the declared labels or annotations over those of next.
func (r *Rules) mergeKeys(next, desired *unstructured.Unstructured, field string) {
	declared, ok, _ := unstructured.NestedFieldNoCopy(desired.Object, "metadata", field)
	want, isMap := declared.(map[string]any)
	if !ok || declared == nil {
		return
	}
	metadata, _ := next.Object["metadata"].(map[string]any)
	if !isMap {
		metadata[field] = declared // for the API server to refuse
		return
	}
	live, ok := metadata[field].(map[string]any)
	if !ok {
		live = make(map[string]any, len(want))
		metadata[field] = live
	}
	for key, value := range r.declared(field, want, live) {
		if removed, ok := strings.CutSuffix(key, "-"); ok {
			delete(live, removed)
		} else if value != nil {
			live[key] = value
		}
	}
}

// DropsField reports whether desired lacks a field that previous declared. It does not look into
// lists, whose items are replaced, nor into maps whose undeclared keys are differences anyway.
func DropsField(previous, desired *unstructured.Unstructured) bool {
	rules := RulesFor(desired, nil)
	for key, before := range previous.Object {
		if !noContent[key] && !slices.Contains(rules.exact, key) && drops(before, desired.Object[key]) {
			return true
		}
	}
	return false
}

func drops(before, want any) bool {
	if before == nil {
		return false
	}
	if want == nil {
		return true
	}
	former, isMap := before.(map[string]any)
	wanted, alsoMap := want.(map[string]any)
	if !isMap || !alsoMap {
		return false
	}
	for key, value := range former {
		if drops(value, wanted[key]) {
			return true
		}
	}
	return false
}
