package order_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/agent/internal/order"
)

func TestCycle(t *testing.T) {
	for graph, want := range map[string]string{
		"":                            "",
		"a:b":                         "", // b is not known
		"a:a":                         "a a",
		"a:b b:a":                     "a b a",
		"a:b b:c c:a":                 "a b c a",
		"a:b b:c c:b":                 "", // a waits for a cycle, and is not part of it
		"a:b,c b:d c:d d:":            "",
		"a:b,c b:d c:a d:":            "a c a",
		"a:b b:c,d c:e d:e e:b,f f:a": "a b c e f a",
		"b:c c:b":                     "",
	} {
		dependsOn := map[string][]string{}
		for _, edges := range strings.Fields(graph) {
			name, on, _ := strings.Cut(edges, ":")
			dependsOn[name] = strings.FieldsFunc(on, func(r rune) bool { return r == ',' })
		}
		if got := strings.Join(order.Cycle("a", func(name string) []string { return dependsOn[name] }), " "); got != want {
			t.Errorf("%s: cycle %q, want %q", graph, got, want)
		}
	}
	// Each work is looked at once, however many ways lead to it.
	looked := 0
	if got := order.Cycle("0/0", func(name string) []string {
		looked++
		var layer, n int
		if _, err := fmt.Sscanf(name, "%d/%d", &layer, &n); err != nil || layer == 100 {
			return nil
		}
		return []string{fmt.Sprintf("%d/0", layer+1), fmt.Sprintf("%d/1", layer+1)}
	}); got != nil || looked != 201 {
		t.Errorf("cycle %v, %d works looked at", got, looked)
	}
	if !slices.Equal(order.Cycle("a", func(string) []string { return []string{"b", "a"} }), []string{"a", "b", "a"}) {
		t.Error("the first way is not taken")
	}
}
