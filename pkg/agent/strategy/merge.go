package strategy

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// merger writes what a manifest declares into a copy of the live object.
type merger struct {
	quirks quirks
	// changed says that the manifest is another than the one last applied. Items of
	// lists are then kept as they live only if previous declared them alike.
	changed bool
}

// object merges the fields other than metadata and status. Previous is the
// manifest last applied, or nil.
func (g merger) object(next, desired, previous *unstructured.Unstructured) {
	var before map[string]any
	if previous != nil {
		before = previous.Object
	}
	for key, want := range desired.Object {
		if !notBody[key] && !g.quirks.leave[key] && !slices.Contains(g.quirks.exact, key) {
			g.field(next.Object, want, before[key], key)
		}
	}
	for _, key := range g.quirks.exact {
		g.exact(next.Object, desired.Object[key], key)
	}
}

// field sets one declared field.
func (g merger) field(next map[string]any, want, previous any, key string) {
	switch want := want.(type) {
	case nil:
		return
	case map[string]any:
		if live, ok := next[key].(map[string]any); ok {
			before, _ := previous.(map[string]any)
			for key, value := range want {
				g.field(live, value, before[key], key)
			}
			return
		}
	case []any:
		if live, ok := next[key].([]any); ok {
			before, _ := previous.([]any)
			if g.quirks.mayHaveMore(want) {
				next[key] = g.union(live, want, before, key)
			} else {
				next[key] = g.list(live, want, before, key)
			}
			return
		}
	}
	next[key] = runtime.DeepCopyJSONValue(want)
}

// exact sets a map in which nothing else may stand, but for what is injected.
func (g merger) exact(next map[string]any, want any, key string) {
	fields, isMap := want.(map[string]any)
	if want != nil && !isMap {
		next[key] = runtime.DeepCopyJSONValue(want)
		return
	}
	merged := make(map[string]any, len(fields))
	for name, value := range fields {
		if value != nil && !g.quirks.injected[name] {
			merged[name] = value
		}
	}
	live, _ := next[key].(map[string]any)
	for name := range g.quirks.injected {
		if value, ok := live[name]; ok {
			merged[name] = value
		} else if value, ok := fields[name]; ok && value != nil {
			merged[name] = value
		}
	}
	if len(merged) == 0 {
		delete(next, key)
		return
	}
	next[key] = merged
}

// list gives the declared items. One that is there already keeps what the API
// server and others have added to it; one that differs is written as declared,
// so that nothing of its former self contradicts it.
func (g merger) list(live, want, previous []any, key string) []any {
	at := &pointer{key: key}
	used := make([]bool, len(live))
	items := make([]any, len(want))
	for i, item := range want {
		items[i] = runtime.DeepCopyJSONValue(item)
		if g.changed && !slices.ContainsFunc(previous, func(before any) bool { return reflect.DeepEqual(before, item) }) {
			continue
		}
		for _, candidate := range candidates(i, len(live)) {
			if !used[candidate] && contains(live[candidate], item, at, g.quirks) {
				items[i], used[candidate] = live[candidate], true
				break
			}
		}
	}
	return items
}

// candidates are the indexes of a list, the one given first.
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

// union adds the declared items to those there are. One of the same name is
// merged; one that only previous declared goes.
func (g merger) union(live, want, previous []any, key string) []any {
	at := &pointer{key: key}
	items := slices.Clone(live)
	for _, before := range previous {
		if !slices.ContainsFunc(want, func(item any) bool { return sameItem(item, before) }) {
			items = slices.DeleteFunc(items, func(item any) bool { return contains(item, before, at, g.quirks) })
		}
	}
	for _, item := range want {
		if slices.ContainsFunc(items, func(live any) bool { return contains(live, item, at, g.quirks) }) {
			continue
		}
		if i := slices.IndexFunc(items, func(live any) bool { return sameItem(live, item) }); i >= 0 {
			holder := map[string]any{key: items[i]}
			g.field(holder, item, nil, key)
			items[i] = holder[key]
			continue
		}
		items = append(items, runtime.DeepCopyJSONValue(item))
	}
	return items
}

// sameItem says whether two items of a list are one by name, or equal.
func sameItem(a, b any) bool {
	aName, aOK := itemName(a)
	bName, bOK := itemName(b)
	if aOK && bOK {
		return aName == bName
	}
	return reflect.DeepEqual(a, b)
}

func itemName(item any) (string, bool) {
	fields, _ := item.(map[string]any)
	name, ok := fields["name"].(string)
	return name, ok
}

// mergeKeys writes the declared labels or annotations over those of an object.
func mergeKeys(next *unstructured.Unstructured, desired *unstructured.Unstructured, field string) {
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
	for key, value := range want {
		if removed, ok := strings.CutSuffix(key, "-"); ok {
			delete(live, removed)
		} else if value != nil {
			live[key] = value
		}
	}
}

// dropsField says whether the manifest lacks a field that previous declared,
// outside lists (whose items are replaced) and exact maps.
func dropsField(previous, desired *unstructured.Unstructured) bool {
	exact := quirksOf(desired, nil).exact
	for key, before := range previous.Object {
		if notBody[key] || slices.Contains(exact, key) {
			continue
		}
		if drops(before, desired.Object[key]) {
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
	fields, isMap := before.(map[string]any)
	wanted, alsoMap := want.(map[string]any)
	if !isMap || !alsoMap {
		return false
	}
	for key, value := range fields {
		if drops(value, wanted[key]) {
			return true
		}
	}
	return false
}
