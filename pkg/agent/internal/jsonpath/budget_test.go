package jsonpath

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// wide returns an object with n objects in it, each of which has a few fields.
func wide(n int) map[string]any {
	items := map[string]any{}
	for i := range n {
		items[fmt.Sprint("k", i)] = map[string]any{"a": map[string]any{"a": "x"}, "l": []any{"x", int64(1), map[string]any{"a": "y"}}}
	}
	return map[string]any{"metadata": items, "a": items}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// maxBytesPerVisit is more than any visit allocates.
const maxBytesPerVisit = 512

// TestBudget: paths that multiply end with ErrBudget, and take memory in proportion to the budget.
func TestBudget(t *testing.T) {
	object := wide(2000)
	const budget = 100_000
	for expression, exceeds := range map[string]bool{
		".metadata.k1.a":  false,
		".metadata.*.a.a": false,
		"..a":             false,
		"..a..a..a":       true,
		".*.*.*.*":        false,
		"['a'" + strings.Repeat(",'a'", 400) + "]":                                                  false,
		strings.Repeat("['metadata','a','metadata','a']['k1','k1','k1','k1']['a','a']['a','a']", 1): false,
		"[" + strings.Repeat("'a',", 100) + "'a']" + ".*.l[*]":                                      true,
		".metadata.*.l[?(@.a == 'y')]":                                                              false,
		"['metadata'" + strings.Repeat(",'metadata'", 300) + "]..a":                                 true,
	} {
		path, err := Parse(expression)
		if err != nil {
			t.Errorf("%.60s: %v", expression, err)
			continue
		}
		left, before := Budget(budget), allocated()
		_, err = path.Find(object, &left)
		if errors.Is(err, ErrBudget) != exceeds {
			t.Errorf("%.60s: error %v, want ErrBudget %v; %d is left", expression, err, exceeds, left)
		}
		if grown := allocated() - before; grown > budget*maxBytesPerVisit {
			t.Errorf("%.60s: %d bytes allocated", expression, grown)
		}
		if exceeds && left != 0 {
			t.Errorf("%.60s: %d is left", expression, left)
		}
	}
	if _, err := Parse("." + strings.Repeat("a", MaxLength)); err == nil || err.Error() != "it has 4097 bytes, at most 4096 are allowed" {
		t.Errorf("a long path: %v", err)
	}
	if _, err := Parse("..a..a..a..a"); err == nil || err.Error() != "it descends recursively (..) more than 3 times" {
		t.Errorf("many descents: %v", err)
	}
}

// TestComparisonsCount: the texts that filters compare count.
func TestComparisonsCount(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	items := make([]any, 100)
	for i := range items {
		items[i] = map[string]any{"t": text, "u": text}
	}
	path, err := Parse(".l[?(@.t == @.u)].n")
	if err != nil {
		t.Fatal(err)
	}
	budget := Budget(10_000)
	if _, err := path.Find(map[string]any{"l": items}, &budget); !errors.Is(err, ErrBudget) {
		t.Errorf("error %v, want ErrBudget", err)
	}
}

// FuzzBudget: whatever the path, its evaluation allocates in proportion to its budget, and returns the
// same again.
func FuzzBudget(f *testing.F) {
	for _, seed := range []string{
		".a", "..a", ".a.*", ".a[*].b", "['a','b']", ".a[?(@.b=='c')].d", ".a[0:2:1]", "..a..a..a", "[*,*]['a',*]", ".a[?(@.b)]", `{"x"}`,
	} {
		f.Add(seed, uint16(100))
	}
	object := wide(30)
	f.Fuzz(func(t *testing.T, expression string, budget uint16) {
		path, err := Parse(expression)
		if err != nil {
			return
		}
		left, before := Budget(budget), allocated()
		found, err := path.Find(object, &left)
		if grown := allocated() - before; grown > (uint64(budget)+uint64(len(expression))+1000)*maxBytesPerVisit {
			t.Errorf("%q: %d bytes for a budget of %d", expression, grown, budget)
		}
		if len(found) > int(budget) || left < 0 {
			t.Errorf("%q: %d matches for a budget of %d, of which %d is left", expression, len(found), budget, left)
		}
		left = Budget(budget)
		if again, errAgain := path.Find(object, &left); len(again) != len(found) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Errorf("%q: %d matches, %v, then %d, %v", expression, len(found), err, len(again), errAgain)
		}
	})
}
