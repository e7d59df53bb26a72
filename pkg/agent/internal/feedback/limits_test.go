package feedback_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/workwire/workwire/pkg/agent/internal/feedback"
)

// TestLimits: what is too large or too expensive is left out, and an error says so; other values are
// reported.
func TestLimits(t *testing.T) {
	items := map[string]any{}
	for i := range 20_000 {
		items[fmt.Sprint("k", i)] = map[string]any{"a": map[string]any{"a": "x"}}
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "items": items, "ok": "yes", "metadata": map[string]any{"name": "n"},
		"large": strings.Repeat("x", 16<<10+1), "middle": strings.Repeat("x", 15<<10),
	}}
	var many, middles []string
	for i := range 300 {
		many = append(many, fmt.Sprint("v", i), ".ok")
	}
	for i := range 6 {
		middles = append(middles, fmt.Sprint("v", i), ".middle")
	}
	for name, c := range map[string]struct {
		paths     []string
		manifests int
		values    int
		err       string
	}{
		"fine":                {[]string{"a", ".ok"}, 1, 1, ""},
		"too many visits":     {[]string{"a", "['items'" + strings.Repeat(",'items'", 30) + "]..a", "b", ".ok"}, 1, 1, "failed to find value for a with error: it visits too many values"},
		"a union of the same": {[]string{"a", "['items'" + strings.Repeat(",'items'", 400) + "]"}, 1, 0, "the length of returned json raw string for name a is larger than the maximum length 1024"},
		"a large value":       {[]string{"a", ".large", "b", ".ok"}, 1, 1, "the value for a has 16385 bytes, at most 16384 are reported"},
		"large values":        {middles, 1, 4, "the value for v4 is left out: the values of the manifest are too large together"},
		"a share of sizes":    {[]string{"a", ".ok", "b", ".middle"}, 5000, 1, "the value for b is left out: the values of the manifest are too large together"},
		"many paths":          {many, 1, 256, "300 values are requested, of which the first 256 are read"},
		"a long path":         {[]string{"a", "." + strings.Repeat("x", 5000)}, 1, 0, "it has 5001 bytes, at most 4096 are allowed"},
		"many long errors":    {[]string{"a", "[" + strings.Repeat("x", 4000), strings.Repeat("b", 5000), "..["}, 1, 0, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			reader := feedback.New(feedback.Config{RawJSON: true})
			values, err := reader.Values(nil, paths(c.paths...), object, c.manifests)
			if len(values) != c.values || !strings.Contains(errorText(err), c.err) || (err == nil) != (c.err == "") {
				t.Errorf("%d values, error %v, want %d values, %s", len(values), err, c.values, c.err)
			}
			if n := len(errorText(err)); n > 4200 {
				t.Errorf("the error has %d bytes", n)
			}
		})
	}
}
