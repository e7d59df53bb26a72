package fields

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Normalized holds the declared fields that the API server stored with another value, for example a
// default or a quantity in canonical form. It maps their JSON pointers to digests of the stored
// values. A field that keeps its stored value is no difference.
type Normalized map[string]string

// Normalized compares the API server's answer to a write with the manifest that was written. It
// returns nil if the manifest was stored as it is.
func (r *Rules) Normalized(desired, answer *unstructured.Unstructured) Normalized {
	found := r.compare(desired, answer, nil)
	if len(found) == 0 {
		return nil
	}
	normalized := make(Normalized, len(found))
	for _, difference := range found {
		normalized[difference.path] = Digest(difference.live)
	}
	return normalized
}

// Differences returns the JSON pointers, sorted, of the fields in which live is not as desired
// declares. Of the metadata it compares labels and annotations only.
func (r *Rules) Differences(desired, live *unstructured.Unstructured, normalized Normalized) []string {
	found := r.compare(desired, live, normalized)
	paths := make([]string, len(found))
	for i, difference := range found {
		paths[i] = difference.path
	}
	slices.Sort(paths)
	return paths
}

// difference is a field that is not as declared. Want is nil if it is declared not to exist, live
// is absent{} if it does not exist.
type difference struct {
	path       string
	want, live any
}

type absent struct{}

// comparison collects differences.
type comparison struct {
	rules      *Rules
	normalized Normalized
	found      []difference
	stopEarly  bool // at the first difference
}

func (c *comparison) add(at *Pointer, want, live any) {
	path := at.String()
	if before, ok := c.normalized[path]; ok && before == Digest(live) {
		return
	}
	c.found = append(c.found, difference{path: path, want: want, live: live})
}

// compare returns the differences of an object, but for those that are normalized.
func (r *Rules) compare(desired, live *unstructured.Unstructured, normalized Normalized) []difference {
	c := comparison{rules: r, normalized: normalized}
	for key, want := range desired.Object {
		if r.Merged(key) {
			c.field(want, live.Object, &Pointer{key: key})
		}
	}
	for _, key := range r.exact {
		c.exact(desired.Object[key], live.Object[key], &Pointer{key: key})
	}
	wantMetadata, _ := desired.Object["metadata"].(map[string]any)
	liveMetadata, _ := live.Object["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		want, _ := wantMetadata[key].(map[string]any)
		got, _ := liveMetadata[key].(map[string]any)
		c.keys(r.declared(key, want, got), got, (&Pointer{key: "metadata"}).Key(key))
	}
	return c.found
}

// keys compares labels or annotations: a declared key that ends in "-" must not exist.
func (c *comparison) keys(want, got map[string]any, at *Pointer) {
	for key, value := range want {
		if removed, ok := strings.CutSuffix(key, "-"); ok {
			if live, exists := got[removed]; exists {
				c.add(at.Key(removed), nil, live)
			}
			continue
		}
		c.field(value, got, at.Key(key))
	}
}

// exact compares maps that may hold declared keys only.
func (c *comparison) exact(want, got any, at *Pointer) {
	wantFields, isMap := want.(map[string]any)
	if !isMap && want != nil {
		c.value(want, got, at)
		return
	}
	gotFields, _ := got.(map[string]any)
	for key, value := range wantFields {
		if !c.rules.injected[key] {
			c.field(value, gotFields, at.Key(key))
		}
	}
	for key, live := range gotFields {
		if want, declared := wantFields[key]; (!declared || want == nil) && !c.rules.injected[key] {
			c.add(at.Key(key), nil, live)
		}
	}
}

// field compares the field of in that at ends in. Null declares nothing.
func (c *comparison) field(want any, in map[string]any, at *Pointer) {
	if want == nil || c.stopEarly && len(c.found) > 0 {
		return
	}
	got, ok := in[at.key]
	if !ok || got == nil {
		c.add(at, want, absent{})
		return
	}
	c.value(want, got, at)
}

func (c *comparison) value(want, got any, at *Pointer) {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			c.add(at, want, got)
			return
		}
		for key, value := range want {
			c.field(value, got, at.Key(key))
		}
	case []any:
		items, ok := got.([]any)
		if !ok {
			c.add(at, want, got)
			return
		}
		c.list(want, items, at)
	default:
		if !equalScalars(want, got, at) {
			c.add(at, want, got)
		}
	}
}

func (c *comparison) list(want, got []any, at *Pointer) {
	if c.rules.allowsExtra(want) {
		for i, item := range want {
			if !slices.ContainsFunc(got, func(live any) bool { return c.rules.contains(live, item, at) }) {
				c.add(at.item(i), item, absent{})
			}
		}
		return
	}
	if len(want) != len(got) {
		c.add(at, want, got)
		return
	}
	for i, item := range want {
		c.value(item, got[i], at.item(i))
	}
}

// contains reports whether live, an item of the list at, holds all that want declares.
func (r *Rules) contains(live, want any, at *Pointer) bool {
	c := comparison{rules: r, stopEarly: true}
	c.value(want, live, at.item(0))
	return len(c.found) == 0
}

// equalScalars compares values that are neither objects nor lists: numbers by value, resource
// quantities by meaning.
func equalScalars(want, got any, at *Pointer) bool {
	if want == got {
		return true
	}
	wantNumber, wantOK := number(want)
	gotNumber, gotOK := number(got)
	if wantOK && gotOK {
		_, wantInt := want.(int64)
		_, gotInt := got.(int64)
		return wantInt != gotInt && wantNumber == gotNumber
	}
	if at.parent == nil || !quantities[at.parent.key] {
		return false
	}
	wantQuantity, wantErr := quantity(want)
	gotQuantity, gotErr := quantity(got)
	return wantErr == nil && gotErr == nil && wantQuantity.Cmp(gotQuantity) == 0
}

func number(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// quantities are fields whose values are resource quantities. Others that the API server normalizes
// are known from its answer.
var quantities = map[string]bool{"requests": true, "limits": true, "capacity": true, "hard": true, "overhead": true}

func quantity(value any) (resource.Quantity, error) {
	return resource.ParseQuantity(fmt.Sprint(value))
}

// Digest returns 16 hex digits of the SHA-256 of a value's JSON. Values may be secret or large, so
// that only their digests are kept.
func Digest(value any) string {
	if _, ok := value.(absent); ok {
		return "absent"
	}
	encoded, err := json.Marshal(value) // sorts keys
	if err != nil {
		return "" // values were decoded from JSON
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])[:16]
}
