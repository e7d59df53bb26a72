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
		"nothing hangs":  {nil, 1, "; 1 object of lower waves waits"},
		"dropped": {[]Held{{Meta: workv1.ManifestResourceMeta{Resource: "configmaps", Namespace: "shop", Name: "x"}, Dropped: true, Finalizers: []string{"z"}}}, 1,
			"; configmaps shop/x, which the spec no longer has, waits for its finalizers z; 1 object of lower waves waits"},
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

// TestFirstHeld checks which object a message of Deleting names first, if any.
func TestFirstHeld(t *testing.T) {
	widget := workv1.ManifestResourceMeta{Kind: "Widget", Namespace: "shop", Name: "x"}
	space := workv1.ManifestResourceMeta{Kind: "Namespace", Name: "n"}
	for name, c := range map[string]struct {
		held  []Held
		lower int
		want  workv1.ManifestResourceMeta
	}{
		"none":              {},
		"only lower waves":  {lower: 2},
		"finalizers":        {held: []Held{{Meta: widget, Finalizers: []string{"z"}}, {Meta: space, Finalizers: []string{"z"}}}, lower: 1, want: widget},
		"dropped":           {held: []Held{{Meta: widget, Dropped: true, Finalizers: []string{"z"}}}, want: widget},
		"dropped, refused":  {held: []Held{{Meta: widget, Dropped: true, Refused: "Forbidden"}}, want: widget},
		"refused":           {held: []Held{{Meta: space, Refused: "Forbidden"}}, lower: 1, want: space},
		"refused, and more": {held: []Held{{Meta: space, Refused: "Forbidden"}, {Meta: widget, Dropped: true, Finalizers: []string{"z"}}}, want: space},
	} {
		status := DeletingStatus(workv1.ManifestWorkStatus{}, 2, nil, metav1.Now())
		AddHeld(&status, c.held, c.lower)
		message := status.Conditions[0].Message
		if says, got := FirstHeld(message); got != c.want || strings.TrimPrefix(message, deletingMessage) != strings.TrimSuffix("; "+says, "; ") {
			t.Errorf("%s: %+v, %q", name, got, says)
		}
	}
}
