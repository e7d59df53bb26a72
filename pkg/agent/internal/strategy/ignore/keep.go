package ignore

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/strategy/ownership"
)

// Keep adds to the body of an apply the live values of ignored fields that manager, and nobody
// else, has applied: server-side apply would remove them if they were left out. Fields that others
// have taken over stay out of the body. The error is an [*Error].
func (f *Fields) Keep(body, live *unstructured.Unstructured, manager string) error {
	rest, err := f.without(live)
	if err != nil {
		return &Error{Err: err}
	}
	keepFields(body.Object, live.Object, rest, ownership.Applied(live, manager))
	return nil
}

// keepFields is Keep for the fields of an object. Rest is live without ignored fields.
func keepFields(body, live, rest map[string]any, owners ownership.Fields) {
	for key, value := range live {
		owners := owners.Field(key)
		if !owners.Owned() {
			continue
		}
		left, stays := rest[key]
		if !stays {
			if part, ok := owners.ExclusivelyOwned(value); ok {
				body[key] = fill(body[key], part)
			}
			continue
		}
		switch value := value.(type) {
		case map[string]any:
			left, isMap := left.(map[string]any)
			below, has := body[key].(map[string]any)
			if !isMap || !has && body[key] != nil {
				continue
			}
			if !has {
				below = map[string]any{}
			}
			if keepFields(below, value, left, owners); len(below) > 0 {
				body[key] = below
			}
		case []any:
			left, isList := left.([]any)
			items, has := body[key].([]any)
			if isList && has {
				body[key] = keepItems(items, value, left, owners)
			}
		}
	}
}

// keepItems is Keep for the items of a list.
func keepItems(body, live, rest []any, owners ownership.Fields) []any {
	if owners.Atomic() {
		if !owners.Shared() && reflect.DeepEqual(body, rest) {
			return runtime.DeepCopyJSONValue(live).([]any)
		}
		return body
	}
	for i, j := range matchItems(live, rest) {
		element, ok := owners.Item(live[i], i)
		if !ok {
			continue
		}
		declared := ownership.IndexOf(body, element)
		if j < 0 {
			part, ok := owners.At(element).ExclusivelyOwned(live[i])
			if ok && declared < 0 {
				body = append(body, ownership.SetKeys(part, element))
			}
			continue
		}
		if declared < 0 {
			continue // the manifest no longer declares it
		}
		next, isMap := body[declared].(map[string]any)
		value, isMapToo := live[i].(map[string]any)
		if isMap && isMapToo {
			keepFields(next, value, rest[j].(map[string]any), owners.At(element))
		}
	}
	return body
}

// matchItems returns, for each item of live, its index in rest, which is live with fields or whole
// items removed; -1 for an item that was removed.
func matchItems(live, rest []any) []int {
	indexes := make([]int, len(live))
	next := 0
	for i, item := range live {
		indexes[i] = -1
		if next < len(rest) && (len(live) == len(rest) || isReduced(rest[next], item)) {
			indexes[i] = next
			next++
		}
	}
	return indexes
}

// isReduced reports whether a value can be the full one with fields or items removed.
func isReduced(value, full any) bool {
	switch value := value.(type) {
	case map[string]any:
		full, ok := full.(map[string]any)
		for key, field := range value {
			whole, has := full[key]
			if ok = ok && has && isReduced(field, whole); !ok {
				break
			}
		}
		return ok
	case []any:
		full, ok := full.([]any)
		next := 0
		for _, item := range full {
			if next < len(value) && isReduced(value[next], item) {
				next++
			}
		}
		return ok && next == len(value)
	default:
		return reflect.DeepEqual(value, full)
	}
}

// fill adds to the declared value the fields that it lacks.
func fill(declared, more any) any {
	if declared == nil {
		return more
	}
	object, isMap := declared.(map[string]any)
	others, isMapToo := more.(map[string]any)
	if isMap && isMapToo {
		for key, value := range others {
			object[key] = fill(object[key], value)
		}
	}
	return declared
}
