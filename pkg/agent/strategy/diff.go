package strategy

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

// notBody are the top-level fields that have rules of their own.
var notBody = map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "status": true}

// Settled remembers what the API server made of a manifest: the fields whose
// value in its answer to our own write was another than the declared one, by
// JSON pointer, with a digest of that value. As long as they keep it they are no
// drift. It belongs to one manifest of one work.
type Settled struct {
	hash   string // Manifest.Hash
	values map[string]string
}

// settle gives what is to be remembered of the API server's answer to a write;
// nil if it took over the manifest as it is.
func settle(m *Manifest, answer *unstructured.Unstructured) *Settled {
	c := comparison{quirks: m.quirks(answer)}
	c.object(m.Desired, answer)
	if len(c.found) == 0 {
		return nil
	}
	settled := &Settled{hash: m.Hash, values: make(map[string]string, len(c.found))}
	for _, difference := range c.found {
		settled.values[difference.path] = digest(difference.live)
	}
	return settled
}

// differences gives the JSON pointers of what live has otherwise than the
// manifest declares, sorted; labels and annotations included, other metadata not.
func differences(m *Manifest, live *unstructured.Unstructured, settled *Settled) []string {
	c := comparison{quirks: m.quirks(live)}
	if settled != nil && settled.hash == m.Hash {
		c.settled = settled.values
	}
	c.object(m.Desired, live)
	paths := make([]string, len(c.found))
	for i, difference := range c.found {
		paths[i] = difference.path
	}
	slices.Sort(paths)
	return paths
}

// difference is one field that is not as declared. Live is absent{} if there is
// none.
type difference struct {
	path string
	live any
}

type absent struct{}

// comparison collects differences.
type comparison struct {
	quirks  quirks
	settled map[string]string
	found   []difference
	enough  bool // one difference is enough to know
}

// pointer is a JSON pointer, built from its end: rendering it costs only where a
// difference is found.
type pointer struct {
	parent *pointer
	key    string
	index  int // of an item, if key is empty
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func (p *pointer) String() string {
	if p == nil {
		return ""
	}
	if p.key == "" {
		return fmt.Sprintf("%s/%d", p.parent, p.index)
	}
	return p.parent.String() + "/" + pointerEscapes.Replace(p.key)
}

func (c *comparison) add(at *pointer, live any) {
	path := at.String()
	if before, ok := c.settled[path]; ok && before == digest(live) {
		return
	}
	c.found = append(c.found, difference{path: path, live: live})
}

func (c *comparison) object(desired, live *unstructured.Unstructured) {
	for key, want := range desired.Object {
		if notBody[key] || c.quirks.leave[key] || slices.Contains(c.quirks.exact, key) {
			continue
		}
		c.field(want, live.Object, &pointer{key: key})
	}
	for _, key := range c.quirks.exact {
		c.exact(desired.Object[key], live.Object[key], &pointer{key: key})
	}
	wantMetadata, _ := desired.Object["metadata"].(map[string]any)
	liveMetadata, _ := live.Object["metadata"].(map[string]any)
	for _, key := range []string{"labels", "annotations"} {
		want, _ := wantMetadata[key].(map[string]any)
		got, _ := liveMetadata[key].(map[string]any)
		c.merged(want, got, &pointer{parent: &pointer{key: "metadata"}, key: key})
	}
}

// merged compares labels or annotations: a key that ends in "-" must not exist.
func (c *comparison) merged(want, got map[string]any, at *pointer) {
	for key, value := range want {
		if removed, ok := strings.CutSuffix(key, "-"); ok {
			if live, exists := got[removed]; exists {
				c.add(&pointer{parent: at, key: removed}, live)
			}
			continue
		}
		c.field(value, got, &pointer{parent: at, key: key})
	}
}

// exact compares maps in which nothing may stand that is not declared.
func (c *comparison) exact(want, got any, at *pointer) {
	wantFields, isMap := want.(map[string]any)
	if !isMap && want != nil {
		c.value(want, got, at)
		return
	}
	gotFields, _ := got.(map[string]any)
	for key, value := range wantFields {
		if !c.quirks.injected[key] {
			c.field(value, gotFields, &pointer{parent: at, key: key})
		}
	}
	for key, live := range gotFields {
		if want, declared := wantFields[key]; (!declared || want == nil) && !c.quirks.injected[key] {
			c.add(&pointer{parent: at, key: key}, live)
		}
	}
}

// field compares the field that at ends in. Null declares nothing.
func (c *comparison) field(want any, in map[string]any, at *pointer) {
	if want == nil || c.enough && len(c.found) > 0 {
		return
	}
	got, ok := in[at.key]
	if !ok || got == nil {
		c.add(at, absent{})
		return
	}
	c.value(want, got, at)
}

func (c *comparison) value(want, got any, at *pointer) {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		if !ok {
			c.add(at, got)
			return
		}
		for key, value := range want {
			c.field(value, got, &pointer{parent: at, key: key})
		}
	case []any:
		items, ok := got.([]any)
		if !ok {
			c.add(at, got)
			return
		}
		c.list(want, items, at)
	default:
		if !equalScalars(want, got, at) {
			c.add(at, got)
		}
	}
}

func (c *comparison) list(want, got []any, at *pointer) {
	if c.quirks.mayHaveMore(want) {
		for i, item := range want {
			if !slices.ContainsFunc(got, func(live any) bool { return contains(live, item, at, c.quirks) }) {
				c.add(&pointer{parent: at, index: i}, absent{})
			}
		}
		return
	}
	if len(want) != len(got) {
		c.add(at, got)
		return
	}
	for i, item := range want {
		c.value(item, got[i], &pointer{parent: at, index: i})
	}
}

// contains says whether an item of the list at holds all that another declares.
func contains(live, want any, at *pointer, quirks quirks) bool {
	c := comparison{quirks: quirks, enough: true}
	c.value(want, live, &pointer{parent: at})
	return len(c.found) == 0
}

// equalScalars compares what is neither object nor list. Numbers are equal by
// value, quantities of resources by what they mean.
func equalScalars(want, got any, at *pointer) bool {
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

// quantities are the fields whose values are resource quantities. Others that the
// API server normalises are settled by its answer.
var quantities = map[string]bool{"requests": true, "limits": true, "capacity": true, "hard": true, "overhead": true}

func quantity(value any) (resource.Quantity, error) {
	return resource.ParseQuantity(fmt.Sprint(value))
}

// digest tells values apart without holding them: they may be secret, or large.
func digest(value any) string {
	if _, ok := value.(absent); ok {
		return "absent"
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return "" // live objects were decoded from JSON
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:])[:16]
}
