package controller

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/test/kit"
)

// TestBehind: the cache is behind where it lacks what was written before the list, and only there.
func TestBehind(t *testing.T) {
	for _, test := range []struct {
		name           string
		listed, cached version // no uid: none
		want           bool
		wrong          bool
	}{
		{name: "the same", listed: version{"a", "90"}, cached: version{"a", "90"}},
		{name: "not changed yet", listed: version{"a", "90"}, cached: version{"a", "80"}, want: true},
		{name: "changed after the list", listed: version{"a", "90"}, cached: version{"a", "101"}},
		{name: "not created yet", listed: version{"a", "90"}, want: true},
		{name: "created after the list", cached: version{"a", "101"}},
		{name: "not deleted yet", cached: version{"a", "80"}, want: true},
		{name: "changed and then deleted before the list", cached: version{"a", "100"}, want: true},
		{name: "not created again yet", listed: version{"b", "90"}, cached: version{"a", "80"}, want: true},
		{name: "created again after the list", listed: version{"a", "90"}, cached: version{"b", "101"}},
		{name: "fewer digits are older", listed: version{"a", "90"}, cached: version{"a", "9"}, want: true},
		{name: "newer than a later list", listed: version{"a", "90"}, cached: version{"a", "95"}, wrong: true},
		{name: "one version of two objects", listed: version{"a", "90"}, cached: version{"b", "90"}, wrong: true},
		{name: "no version", listed: version{"a", "90"}, cached: version{"a", ""}, wrong: true},
		{name: "a version that is no number", listed: version{"a", "x"}, cached: version{"a", "9"}, wrong: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &listing{resourceVersion: "100", objects: map[types.NamespacedName]version{}}
			if test.listed.uid != "" {
				l.objects[key] = test.listed
			}
			var cached *version
			if test.cached.uid != "" {
				cached = &test.cached
			}
			got, err := l.behind(key, cached)
			if got != test.want || errors.Is(err, errWrongHistory) != test.wrong {
				t.Errorf("behind %v, error %v", got, err)
			}
		})
	}
}

// TestFollows: a list that is older than what was read before it is of another history.
func TestFollows(t *testing.T) {
	for read, wrong := range map[string]bool{"": false, "99": false, "100": false, "101": true, "x": true} {
		err := (&listing{resourceVersion: "100"}).follows(read)
		if errors.Is(err, errWrongHistory) != wrong {
			t.Errorf("after %q: %v", read, err)
		}
	}
}

// TestTracker: what the cache lacks is awaited, in whichever order the events come.
func TestTracker(t *testing.T) {
	list := func(objects ...*workv1.ManifestWork) *listing {
		l := &listing{resourceVersion: "100", objects: map[types.NamespacedName]version{}}
		for _, o := range objects {
			l.objects[KeyOf(o)] = versionOf(o)
		}
		return l
	}
	named := func(name, uid, resourceVersion string) *workv1.ManifestWork {
		w := work(uid, resourceVersion)
		w.Name = name
		return w
	}
	type event struct{ before, after *workv1.ManifestWork }
	for _, test := range []struct {
		name          string
		held          []*workv1.ManifestWork
		listed        *listing
		before, after []event // events before and after the comparison
		done          bool    // without the last of after
	}{
		{name: "nothing", listed: list(), done: true},
		{name: "equal", held: []*workv1.ManifestWork{work("a", "90")}, listed: list(work("a", "90")), done: true},
		{
			name: "one behind, one not created, one not deleted", held: []*workv1.ManifestWork{named("x", "x", "80"), named("z", "z", "80")},
			listed: list(named("x", "x", "90"), named("y", "y", "91")),
			after: []event{
				{named("x", "x", "80"), named("x", "x", "90")}, {nil, named("y", "y", "91")}, {nil, named("other", "o", "101")},
				{named("z", "z", "80"), nil},
			},
		},
		{
			name: "changed twice before the list", held: []*workv1.ManifestWork{work("a", "80")}, listed: list(work("a", "90")),
			after: []event{{work("a", "80"), work("a", "85")}, {work("a", "85"), work("a", "90")}},
		},
		{
			name: "deleted after the list, before the comparison", held: []*workv1.ManifestWork{work("a", "90")}, listed: list(work("a", "90")),
			before: []event{{work("a", "90"), nil}}, done: true,
		},
		{
			name: "created and deleted after the comparison", listed: list(work("a", "90")),
			after: []event{{nil, work("a", "80")}, {work("a", "80"), nil}},
		},
		{
			name: "created again", held: []*workv1.ManifestWork{work("a", "80")}, listed: list(work("b", "90")),
			after: []event{{work("a", "80"), work("b", "90")}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := newWorks(t, test.held...)
			tr := &tracker[*workv1.ManifestWork]{cache: c, deleted: map[types.UID]bool{}}
			apply := func(e event) {
				see(t, c, e.before, e.after)
				tr.changed(stateOfWork(e.before), stateOfWork(e.after))
			}
			for _, e := range test.before {
				apply(e)
			}
			done, err := tr.expect(test.listed)
			if err != nil {
				t.Fatal(err)
			}
			if last := len(test.after) - 1; last >= 0 {
				for _, e := range test.after[:last] {
					apply(e)
				}
				if awaitFor(t.Context(), done, time.Millisecond) {
					t.Error("done before the last event")
				}
				apply(test.after[last])
			}
			if !awaitFor(t.Context(), done, kit.Patience) {
				t.Error("not done")
			}
		})
	}
	c, _ := newWorks(t, work("a", "95"))
	if _, err := (&tracker[*workv1.ManifestWork]{cache: c}).expect(list(work("a", "90"))); !errors.Is(err, errWrongHistory) {
		t.Errorf("a contradiction: %v", err)
	}
}
