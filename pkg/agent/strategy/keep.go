package strategy

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// keepIgnored puts into the body of an apply the live values of the fields that it
// leaves out because they are ignored, as far as nobody but our own applies has
// them: left out, server-side apply would remove them. Those that others have
// taken are theirs, and stay out.
func keepIgnored(body, live *unstructured.Unstructured, fields *fieldSelection, manager string) error {
	rest, err := fields.without(live)
	if err != nil {
		return &IgnoreFieldsError{Err: err}
	}
	owners := ownersOf(live, func(entry metav1.ManagedFieldsEntry) whose {
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			return ours
		}
		return others
	})
	keepFields(body.Object, live.Object, rest, ownership{below: owners.ours}, ownership{below: owners.others})
	return nil
}

// keepFields treats the fields of an object; rest is live without what is ignored.
func keepFields(body, live, rest map[string]any, mine, theirs ownership) {
	for key, value := range live {
		element := fieldElement(key)
		mine, theirs := mine.at(element), theirs.at(element)
		if mine.none() {
			continue
		}
		left, stays := rest[key]
		if !stays {
			if part, ok := solely(value, mine, theirs); ok {
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
			if keepFields(below, value, left, mine, theirs); len(below) > 0 {
				body[key] = below
			}
		case []any:
			left, isList := left.([]any)
			items, has := body[key].([]any)
			if isList && has {
				body[key] = keepItems(items, value, left, mine, theirs)
			}
		}
	}
}

// keepItems treats the items of a list.
func keepItems(body, live, rest []any, mine, theirs ownership) []any {
	if mine.below == nil { // it is one value
		if theirs.none() && reflect.DeepEqual(body, rest) {
			return runtime.DeepCopyJSONValue(live).([]any)
		}
		return body
	}
	for i, j := range survivors(live, rest) {
		element, ok := mine.item(live[i], i)
		if !ok {
			continue
		}
		declared := indexOf(body, element)
		if j < 0 {
			part, ok := solely(live[i], mine.at(element), theirs.at(element))
			if ok && declared < 0 {
				body = append(body, withKeys(part, element))
			}
			continue
		}
		if declared < 0 {
			continue // the manifest has it no more
		}
		next, isMap := body[declared].(map[string]any)
		value, isMapToo := live[i].(map[string]any)
		if isMap && isMapToo {
			keepFields(next, value, rest[j].(map[string]any), mine.at(element), theirs.at(element))
		}
	}
	return body
}

// survivors gives for each item of live its index in rest, which is live with
// fields, or whole items, taken out; -1 for an item that is not there any more.
func survivors(live, rest []any) []int {
	partners := make([]int, len(live))
	next := 0
	for i, item := range live {
		partners[i] = -1
		if next < len(rest) && (len(live) == len(rest) || isReduced(rest[next], item)) {
			partners[i] = next
			next++
		}
	}
	return partners
}

// isReduced says whether a value can be what is left of another.
func isReduced(value, of any) bool {
	switch value := value.(type) {
	case map[string]any:
		of, ok := of.(map[string]any)
		for key, field := range value {
			full, has := of[key]
			if ok = ok && has && isReduced(field, full); !ok {
				break
			}
		}
		return ok
	case []any:
		of, ok := of.([]any)
		next := 0
		for _, full := range of {
			if next < len(value) && isReduced(value[next], full) {
				next++
			}
		}
		return ok && next == len(value)
	default:
		return reflect.DeepEqual(value, of)
	}
}

// fill adds to what is declared what it lacks.
func fill(declared, more any) any {
	if declared == nil {
		return more
	}
	fields, isMap := declared.(map[string]any)
	others, isMapToo := more.(map[string]any)
	if isMap && isMapToo {
		for key, value := range others {
			fields[key] = fill(fields[key], value)
		}
	}
	return declared
}
