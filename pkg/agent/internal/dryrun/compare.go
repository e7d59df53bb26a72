package dryrun

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// maxValue bounds a value in bytes, maxPath a path.
	maxValue = 256
	maxPath  = 512
	// hidden stands for the values of Secrets.
	hidden = `"(not shown)"`
)

// hideValues replaces the values of objects, whose spec must not be seen, and leaves out what an API server or
// webhook says, which may have some.
func hideValues(objects []wire.DryRunObject) {
	for i := range objects {
		o := &objects[i]
		o.Warnings = nil
		if o.Result == wire.DryRunRefused || o.Result == wire.DryRunInvalid {
			o.Message = "the reason is not shown, since the question was sealed and the answer is not"
		}
		for j := range o.Fields {
			f := &o.Fields[j]
			if f.From != "" {
				f.From = hidden
			}
			if f.To != "" {
				f.To = hidden
			}
		}
	}
}

// bookkeeping are the metadata that the API server writes by itself.
var bookkeeping = []string{"managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"}

// compare returns the fields in which two versions of an object differ, but for its status and what
// the API server writes by itself; and how many more than [wire.MaxDryRunFields] there are. No values
// of a Secret are told.
func compare(before, after *unstructured.Unstructured) (fields []wire.DryRunField, omitted int) {
	c := comparison{secret: after.GetKind() == "Secret" && after.GroupVersionKind().Group == ""}
	c.objects("", content(before), content(after))
	return c.fields, c.omitted
}

// content returns an object without its status and bookkeeping, sharing the rest.
func content(obj *unstructured.Unstructured) map[string]any {
	all := maps.Clone(obj.Object)
	delete(all, "status")
	if metadata, ok := all["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range bookkeeping {
			delete(metadata, key)
		}
		all["metadata"] = metadata
	}
	return all
}

// comparison collects differences.
type comparison struct {
	secret  bool
	fields  []wire.DryRunField
	omitted int
}

func (c *comparison) objects(path string, before, after map[string]any) {
	keys := slices.Sorted(maps.Keys(before))
	for key := range after {
		if _, ok := before[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		b, hadIt := before[key]
		a, hasIt := after[key]
		c.values(join(path, key), b, a, hadIt, hasIt)
	}
}

func (c *comparison) values(path string, before, after any, hadIt, hasIt bool) {
	if hadIt && hasIt {
		switch b := before.(type) {
		case map[string]any:
			if a, ok := after.(map[string]any); ok {
				c.objects(path, b, a)
				return
			}
		case []any:
			if a, ok := after.([]any); ok && c.lists(path, b, a) {
				return
			}
		}
		if reflect.DeepEqual(before, after) {
			return
		}
	}
	c.add(path, before, after, hadIt, hasIt)
}

// lists compares two lists by item, and reports whether that was possible: if their items have
// distinct names, or if they are equally long.
func (c *comparison) lists(path string, before, after []any) bool {
	b, bNames, named := byName(before)
	a, aNames, alsoNamed := byName(after)
	if named && alsoNamed {
		for _, name := range bNames {
			item, ok := a[name]
			c.values(fmt.Sprintf("%s[%s]", path, name), b[name], item, true, ok)
		}
		for _, name := range aNames {
			if _, ok := b[name]; !ok {
				c.values(fmt.Sprintf("%s[%s]", path, name), nil, a[name], false, true)
			}
		}
		// Of what both have; to insert an item moves none.
		kept := slices.DeleteFunc(bNames, func(name string) bool { return a[name] == nil })
		if now := slices.DeleteFunc(aNames, func(name string) bool { return b[name] == nil }); !slices.Equal(kept, now) {
			c.add(path+" (order)", kept, now, true, true)
		}
		return true
	}
	if len(before) != len(after) {
		return false
	}
	for i := range before {
		c.values(fmt.Sprintf("%s[%d]", path, i), before[i], after[i], true, true)
	}
	return true
}

// byName returns the items of a list by their field name, and the names in order; false if an item
// has none or shares it.
func byName(list []any) (map[string]any, []string, bool) {
	items, names := make(map[string]any, len(list)), make([]string, 0, len(list))
	for _, item := range list {
		fields, _ := item.(map[string]any)
		name, ok := fields["name"].(string)
		if _, twice := items[name]; !ok || twice {
			return nil, nil, false
		}
		items[name], names = item, append(names, name)
	}
	return items, names, true
}

func (c *comparison) add(path string, before, after any, hadIt, hasIt bool) {
	if len(c.fields) == wire.MaxDryRunFields {
		c.omitted++
		return
	}
	field := wire.DryRunField{Path: condition.Shorten(path, maxPath)}
	if hadIt {
		field.From = c.show(before)
	}
	if hasIt {
		field.To = c.show(after)
	}
	c.fields = append(c.fields, field)
}

func (c *comparison) show(value any) string {
	if c.secret {
		return hidden
	}
	text, err := json.Marshal(value)
	if err != nil {
		return hidden // it was decoded from JSON
	}
	return condition.Shorten(string(text), maxValue)
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// join adds a key to a path as kubectl's JSONPath has it.
func join(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	default:
		return path + "." + key
	}
}
