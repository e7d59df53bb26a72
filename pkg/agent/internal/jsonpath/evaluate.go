package jsonpath

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/client-go/third_party/forked/golang/template"
	"k8s.io/client-go/util/jsonpath"
)

// walkAll follows one node after the other.
func (e *evaluation) walkAll(values []any, nodes []jsonpath.Node) ([]any, error) {
	var err error
	for _, node := range nodes {
		if values, err = e.walk(values, node); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// walk follows one node from each of values.
func (e *evaluation) walk(values []any, node jsonpath.Node) ([]any, error) {
	if err := e.spend(1 + len(values)); err != nil {
		return nil, err
	}
	switch node := node.(type) {
	case *jsonpath.ListNode:
		return e.walkAll(values, node.Nodes)
	case *jsonpath.FieldNode:
		return fieldOf(values, node.Value), nil
	case *jsonpath.ArrayNode:
		return e.each(values, func(value any) ([]any, error) { return elements(value, node.Params) })
	case *jsonpath.FilterNode:
		return e.each(values, func(value any) ([]any, error) { return e.filter(value, node) })
	case *jsonpath.WildcardNode:
		return e.each(values, e.children)
	case *jsonpath.RecursiveNode:
		return e.each(values, func(value any) ([]any, error) { return e.descend(nil, value) })
	case *jsonpath.UnionNode:
		var union []any
		for _, list := range node.Nodes {
			matches, err := e.walkAll(values, list.Nodes)
			if err != nil {
				return nil, err
			}
			union = append(union, matches...)
		}
		return union, nil
	case *jsonpath.TextNode:
		return []any{node.Text}, nil
	case *jsonpath.IntNode:
		return e.each(values, func(any) ([]any, error) { return []any{node.Value}, nil })
	case *jsonpath.FloatNode:
		return e.each(values, func(any) ([]any, error) { return []any{node.Value}, nil })
	case *jsonpath.BoolNode:
		return e.each(values, func(any) ([]any, error) { return []any{node.Value}, nil })
	case *jsonpath.IdentifierNode:
		return nil, fmt.Errorf("unrecognized identifier %s", node.Name)
	default:
		return nil, fmt.Errorf("unexpected node of type %s", node.Type())
	}
}

// each returns the concatenated results of step for values.
func (e *evaluation) each(values []any, step func(any) ([]any, error)) ([]any, error) {
	var found []any
	for _, value := range values {
		matches, err := step(value)
		if err == nil {
			err = e.spend(len(matches))
		}
		if err != nil {
			return nil, err
		}
		found = append(found, matches...)
	}
	return found, nil
}

// fieldOf returns the field with that name of each value that has it.
func fieldOf(values []any, name string) []any {
	found := make([]any, 0, len(values))
	for _, value := range values {
		if fields, ok := value.(map[string]any); ok {
			if field, ok := fields[name]; ok {
				found = append(found, field)
			}
		}
	}
	return found
}

// children returns the items of a list, or the fields of an object sorted by name.
func (e *evaluation) children(value any) ([]any, error) {
	switch value := value.(type) {
	case []any:
		return value, e.spend(len(value))
	case map[string]any:
		if err := e.spend(len(value)); err != nil {
			return nil, err
		}
		fields := make([]any, 0, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			fields = append(fields, value[name])
		}
		return fields, nil
	default:
		return nil, nil
	}
}

// descend appends value and everything in it, at any depth, that is a list or object with content
// or a text that is not empty.
func (e *evaluation) descend(found []any, value any) ([]any, error) {
	if text, ok := value.(string); ok && text != "" {
		return append(found, value), nil
	}
	inner, err := e.children(value)
	if len(inner) == 0 || err != nil {
		return found, err
	}
	found = append(found, value)
	for _, child := range inner {
		if found, err = e.descend(found, child); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// elements returns the items of a list from a start to before an end, by steps.
func elements(value any, params [3]jsonpath.ParamsEntry) ([]any, error) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%T is not array or slice", value)
	}
	start, end, step := 0, len(list), 1
	if params[0].Known {
		start = params[0].Value
	}
	if start < 0 {
		start += len(list)
	}
	if params[1].Known {
		end = params[1].Value
		if end < 0 || end == 0 && params[1].Derived { // the end of [-1] is derived to be 0
			end += len(list)
		}
	}
	if params[2].Known {
		step = params[2].Value
	}
	switch {
	case start == end:
		return nil, nil
	case start < 0 || start >= len(list):
		return nil, fmt.Errorf("array index out of bounds: index %d, length %d", start, len(list))
	case end < 0 || end > len(list):
		return nil, fmt.Errorf("array index out of bounds: index %d, length %d", end-1, len(list))
	case start > end:
		return nil, fmt.Errorf("starting index %d is greater than ending index %d", start, end)
	case step <= 0:
		return nil, errors.New("step must be > 0")
	case step == 1:
		return list[start:end], nil
	}
	var found []any
	list = list[start:end] // from 0: start + step could overflow
	for i := 0; i < len(list); i += step {
		found = append(found, list[i])
	}
	return found, nil
}

// filter returns the items of a list that match the condition.
func (e *evaluation) filter(value any, condition *jsonpath.FilterNode) ([]any, error) {
	if value == nil {
		return nil, nil
	}
	list, ok := value.([]any)
	if !ok {
		return nil, fmt.Errorf("%T is not array or slice and cannot be filtered", value)
	}
	var found []any
	for _, item := range list {
		passes, err := e.holds(item, condition)
		if err != nil {
			return nil, err
		}
		if passes {
			found = append(found, item)
		}
	}
	return found, nil
}

func (e *evaluation) holds(item any, condition *jsonpath.FilterNode) (bool, error) {
	left, err := e.walkAll([]any{item}, condition.Left.Nodes)
	if condition.Operator == "exists" && !errors.Is(err, ErrBudget) {
		return err == nil && len(left) > 0, nil
	}
	if err != nil {
		return false, err
	}
	right, err := e.walkAll([]any{item}, condition.Right.Nodes)
	if err != nil {
		return false, err
	}
	if len(left) > 1 || len(right) > 1 {
		return false, errors.New("can only compare one element at a time")
	}
	// A missing value or null neither equals nor differs from anything.
	if len(left) == 0 || len(right) == 0 || left[0] == nil || right[0] == nil {
		return false, nil
	}
	compare := comparisons[condition.Operator]
	if compare == nil {
		return false, fmt.Errorf("unrecognized filter operator %s", condition.Operator)
	}
	if err := e.spend(min(length(left[0]), length(right[0])) / bytesPerVisit); err != nil {
		return false, err
	}
	return compare(left[0], right[0])
}

// comparisons are the operators of filters.
var comparisons = map[string]func(left, right any) (bool, error){
	"==": func(left, right any) (bool, error) { return template.Equal(left, right) },
	"!=": template.NotEqual, "<": template.Less, "<=": template.LessEqual, ">": template.Greater, ">=": template.GreaterEqual,
}

// bytesPerVisit is how many bytes of two texts are compared for the cost of a visit.
const bytesPerVisit = 64

func length(value any) int {
	text, _ := value.(string)
	return len(text)
}
