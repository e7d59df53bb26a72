package condition

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestAddHeld checks the message of Deleting, and that it has a bound.
func TestAddHeld(t *testing.T) {
	held := func(names ...string) (all []Held) {
		for _, name := range names {
			m := named(0, name)
			m.Kind, m.Namespace = "ConfigMap", "shop"
			all = append(all, Held{Meta: m, Finalizers: []string{"example.com/a", "example.com/b"}})
		}
		return all
	}
	const of = " waits for its finalizers example.com/a, example.com/b"
	long := held("x")
	long[0].Finalizers = []string{strings.Repeat("y", 5000)}
	for name, c := range map[string]struct {
		held  []Held
		lower int
		want  string
	}{
		"none":           {nil, 0, ""},
		"one":            {held("x"), 0, "; ConfigMap shop/x" + of},
		"many":           {held("a", "b", "c", "d", "e"), 0, "; ConfigMap shop/a" + of + "; ConfigMap shop/b" + of + "; ConfigMap shop/c" + of + "; and 2 more"},
		"cluster-scoped": {[]Held{{Meta: workv1.ManifestResourceMeta{Kind: "Namespace", Name: "n"}, Finalizers: []string{"z"}}}, 0, "; Namespace n waits for its finalizers z"},
		"lower waves":    {held("x"), 2, "; ConfigMap shop/x" + of + "; 2 objects of lower waves wait"},
		"nothing hangs":  {nil, 1, "; 1 objects of lower waves wait"},
		"refused": {[]Held{{Meta: workv1.ManifestResourceMeta{Kind: "Namespace", Name: "n"}, Refused: "Forbidden"}}, 0,
			"; Namespace n cannot be deleted (Forbidden): the log of the agent says why"},
	} {
		status := DeletingStatus(workv1.ManifestWorkStatus{}, 2, nil, metav1.Now())
		AddHeld(&status, c.held, c.lower)
		if got := status.Conditions[0].Message; got != "ManifestWork is being deleted"+c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
	status := DeletingStatus(workv1.ManifestWorkStatus{}, 2, nil, metav1.Now())
	AddHeld(&status, long, 0)
	if got := status.Conditions[0].Message; len(got) > maxHeldMessage || !strings.Contains(got, "cut") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	empty := workv1.ManifestWorkStatus{}
	AddHeld(&empty, long, 1)
	if len(empty.Conditions) > 0 {
		t.Error("a work that is not being deleted has a condition")
	}
}
