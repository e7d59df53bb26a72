package clusters

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

func heldNamed(names ...string) (works []heldWork) {
	for _, name := range names {
		works = append(works, heldWork{uid: types.UID("uid-" + name), name: name, generation: 3, reason: workv1.ReasonSourceIdentityChanged})
	}
	return works
}

// TestDecideHeld: what a ManagedCluster says of held works, and which the annotation releases.
func TestDecideHeld(t *testing.T) {
	const ask, list = clusterv1.DeleteHeldWorksAnnotationKey, clusterv1.DeletingHeldWorksAnnotationKey
	const why = workv1.ReasonSourceIdentityChanged
	abc := heldNamed("a", "b", "c")
	// shows is a ManagedCluster that says what v says.
	shows := func(v heldView, annotations ...string) *clusterv1.ManagedCluster {
		c := heldCondition(v)
		cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		cluster.Status.Conditions = []metav1.Condition{c}
		for i := 0; i < len(annotations); i += 2 {
			cluster.Annotations[annotations[i]] = annotations[i+1]
		}
		return cluster
	}
	bare := &clusterv1.ManagedCluster{}
	held := heldView{any: true, listed: true, works: abc}
	for _, c := range []struct {
		name   string
		stored *clusterv1.ManagedCluster
		view   heldView
		want   string // condition, annotations, events, released, requeueAfter
	}{
		{"nothing is known", bare, heldView{}, ""},
		{"never held", bare, heldView{any: true, listed: true}, ""},
		{"held", bare, held, "True " + why},
		{"held, and said so", shows(held), held, "True " + why},
		{"the agent has yet to settle", shows(held), heldView{any: true, listed: true, works: abc, settled: start.Add(time.Second)}, "after 1s"},
		{"some of it is not reported yet", shows(held), heldView{any: true, listed: true, waiting: 3}, ""},
		{"not reported yet, long after the agent was heard", shows(held), heldView{any: true, listed: true, waiting: 3, heard: start.Add(-time.Minute)}, ""},
		{"none any more", shows(held), heldView{any: true, listed: true}, "False NoWorksHeld"},

		{"after a restart, the agent is away", shows(held), heldView{any: true}, ""},
		{"after a restart, the agent has not listed works yet", shows(held), heldView{any: true, heard: start}, "after 1m0s"},
		{"after a restart, the agent has listed none for a minute", shows(held), heldView{any: true, heard: start.Add(-time.Minute)}, "False NoWorksHeld"},
		{"after a restart, one status", shows(held), heldView{any: true, works: abc[:1], heard: start}, "after 1m0s"},
		{"statuses before the list", bare, heldView{any: true, works: abc[:1]}, "True " + why},

		{"released", shows(held, ask, "3"), held, "True " + why + "; -ask; list=a/uid-a,b/uid-b,c/uid-c; DeletingHeldWorks; delete a b c"},
		{"the only one, released", shows(heldView{works: abc[:1]}, ask, "1"), heldView{any: true, listed: true, works: abc[:1]},
			"True " + why + "; -ask; list=a/uid-a; DeletingHeldWorks; delete a"},
		{"wrong number", shows(held, ask, "2"), held, "True " + why + "; -ask; HeldWorksNotDeleted"},
		{"no number", shows(held, ask, "all"), held, "True " + why + "; -ask; HeldWorksNotDeleted"},
		{"zero", shows(heldView{}, ask, "0"), heldView{any: true, listed: true}, "-ask; HeldWorksNotDeleted"},
		{"other works than were seen", shows(heldView{works: heldNamed("a", "b", "d")}, ask, "3"), held, "True " + why + "; -ask; HeldWorksNotDeleted"},
		{"nothing was seen", func() *clusterv1.ManagedCluster { c := shows(held, ask, "3"); c.Status.Conditions = nil; return c }(), held,
			"True " + why + "; -ask; HeldWorksNotDeleted"},
		{"nothing is held any more", shows(held, ask, "3"), heldView{any: true, listed: true}, "False NoWorksHeld; -ask; HeldWorksNotDeleted"},
		{"released, the agent is away since a restart", shows(held, ask, "3"), heldView{any: true}, ""},
		{"released, held since a restore of the hub's API", shows(held, ask, "3"), heldView{any: true, works: abc, heard: start.Add(-time.Minute)},
			"True " + why + "; -ask; list=a/uid-a,b/uid-b,c/uid-c; DeletingHeldWorks; delete a b c"},
		{"released, held since a restore, not all is reported", shows(held, ask, "3"), heldView{any: true, works: abc, waiting: 1, heard: start.Add(-time.Minute)}, ""},
		{"released, not all is reported", shows(held, ask, "3"), heldView{any: true, listed: true, works: abc, waiting: 1}, "True " + why},

		{"being deleted", shows(held, list, "a/uid-a,b/uid-b"), heldView{any: true, listed: true, released: abc[:2]},
			"True HeldWorksDeleting; delete a b"},
		{"being deleted, with others", shows(held, list, "a/uid-a", ask, "1"), heldView{any: true, listed: true, released: abc[:1], works: abc[1:]},
			"True " + why + "; delete a"},
		{"being deleted, with as many of which not all are reported", shows(held, list, "a/uid-a"),
			heldView{any: true, listed: true, released: abc[:1], works: abc[1:2], waiting: 1}, "True " + why + "; delete a"},
		{"being deleted, after a restart", shows(held, list, "a/uid-a"), heldView{any: true, released: abc[:1]}, "delete a"},
		{"partly deleted, or known again", shows(held, list, "a/uid-a,b/uid-b"), heldView{any: true, listed: true, released: abc[1:2]},
			"True HeldWorksDeleting; list=b/uid-b; delete b"},
		{"all deleted", shows(held, list, "a/uid-a"), heldView{any: true, listed: true}, "False NoWorksHeld; -list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := decideHeld(c.stored, c.view, start)
			var got []string
			if s.condition != nil {
				got = append(got, string(s.condition.Status)+" "+s.condition.Reason)
			}
			for _, a := range []struct{ name, key string }{{"ask", ask}, {"list", list}} {
				if value, ok := s.annotations[a.key]; ok && value == nil {
					got = append(got, "-"+a.name)
				} else if ok {
					got = append(got, fmt.Sprintf("%s=%s", a.name, value))
				}
			}
			for _, e := range s.events {
				got = append(got, e.reason)
			}
			if len(s.released) > 0 {
				text := "delete"
				for _, w := range s.released {
					text += " " + w.name
				}
				got = append(got, text)
			}
			if s.requeueAfter > 0 {
				got = append(got, "after "+s.requeueAfter.String())
			}
			if diff := cmp.Diff(c.want, strings.Join(got, "; ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestHeldMessage: the condition says how many, which, why, and what to do.
func TestHeldMessage(t *testing.T) {
	few := []heldWork{{name: "a", reason: workv1.ReasonSourceKnowsTooFew}}
	for _, c := range []struct {
		view   heldView
		reason string
		want   string
	}{
		{heldView{works: heldNamed("a", "b", "c", "d", "e", "f", "g")}, workv1.ReasonSourceIdentityChanged,
			"The agent keeps 7 works that this hub does not know, because they are of a hub with another identity, or of before the cluster was registered here: a, b, c, d, e and 2 more. " +
				"To keep their objects, bring back the API that has the works, or create them again under their names. To delete the works with their " +
				"objects, annotate this ManagedCluster with workwire.dev/delete-held-works=7"},
		{heldView{works: few}, workv1.ReasonSourceKnowsTooFew,
			"The agent keeps 1 works that this hub does not know, because they are a large share of its works: a. " +
				"To keep their objects, bring back the API that has the works, or create them again under their names. To delete the works with their " +
				"objects, annotate this ManagedCluster with workwire.dev/delete-held-works=1"},
		{heldView{released: heldNamed("a", "b", "c", "d", "e")}, clusterv1.ReasonHeldWorksDeleting,
			"Works that this hub does not know are being deleted, since somebody has asked for it: a, b, c, d, e"},
	} {
		if got := heldCondition(c.view); got.Message != c.want || got.Reason != c.reason {
			t.Errorf("the message is\n%s\nwant\n%s, and the reason %s", got.Message, c.want, got.Reason)
		}
	}
	// Somebody who asks for what deletes nothing is told why.
	for value, why := range map[string]string{"all": "must be the number", "0": "must be the number", "12345678901234567890": "=12345678901234567890 deletes", "3": "2 works are held"} {
		var s heldStep
		s.annotations = map[string]any{}
		if s.release(value, heldNamed("a", "b"), true); len(s.events) != 1 || !strings.Contains(s.events[0].message, why) {
			t.Errorf("%s: %+v", value, s.events)
		}
	}
}

// TestReleaseFits: one release covers no more works than an annotation can list.
func TestReleaseFits(t *testing.T) {
	var works []heldWork
	for i := range 10_000 {
		works = append(works, heldWork{name: fmt.Sprintf("work-%06d", i), uid: types.UID(fmt.Sprintf("%036d", i))})
	}
	some := fitting(works)
	text := encodeReleased(some)
	if len(some) < 3000 || len(text) > maxReleased || !cmp.Equal(parseReleased(text), some, cmp.AllowUnexported(heldWork{})) {
		t.Errorf("%d works as %d bytes", len(some), len(text))
	}
	exact := []heldWork{{name: strings.Repeat("a", maxReleased-5), uid: "uid"}}
	if len(fitting(exact)) != 1 {
		t.Error("a work that fits is left out")
	}
	if got := parseReleased("a/1,,b,/2,c/"); len(got) != 1 || got[0] != (heldWork{name: "a", uid: "1"}) {
		t.Errorf("of a damaged list %v is read", got)
	}
}

// TestHeldWorks: which works are held follows from lists, statuses and works that are created.
func TestHeldWorks(t *testing.T) {
	list := func(all bool, uids ...types.UID) func(*heldWorks) {
		return func(h *heldWorks) {
			var versions []wire.SpecVersion
			for _, uid := range uids {
				versions = append(versions, wire.SpecVersion{UID: uid})
			}
			h.list(uidsOf(versions), all, start)
		}
	}
	status := func(uid types.UID, condition string) func(*heldWorks) {
		return func(h *heldWorks) {
			h.report(&wire.Status{UID: uid, Meta: metav1.ObjectMeta{Name: "name-" + string(uid)}, Status: workv1.ManifestWorkStatus{
				Conditions: []metav1.Condition{{Type: condition, Status: metav1.ConditionTrue, Reason: "R"}}}}, start)
		}
	}
	held := func(uid types.UID) func(*heldWorks) { return status(uid, workv1.WorkDeletionHeld) }
	created := func(uid types.UID, name string) func(*heldWorks) {
		return func(h *heldWorks) { h.created(uid, name, start) }
	}
	for _, c := range []struct {
		name    string
		steps   []func(*heldWorks)
		held    string
		waiting int
	}{
		{"listed", []func(*heldWorks){list(true, "1", "2")}, "", 2},
		{"reported", []func(*heldWorks){list(true, "1", "2"), held("2"), held("1")}, "name-1 name-2", 0},
		{"reported before it is listed", []func(*heldWorks){held("1"), list(true, "1", "2")}, "name-1", 1},
		{"reported twice", []func(*heldWorks){held("1"), held("1")}, "name-1", 0},
		{"deleted by the agent", []func(*heldWorks){list(true, "1", "2"), held("1"), status("2", workv1.WorkDeleted)}, "name-1", 0},
		{"released on the cluster", []func(*heldWorks){held("1"), status("1", workv1.WorkDeleting)}, "", 0},
		{"applied, not decided yet", []func(*heldWorks){list(true, "1"), status("1", workv1.WorkApplied)}, "", 1},
		{"no longer held", []func(*heldWorks){held("1"), status("1", workv1.WorkApplied)}, "", 0},
		{"not listed any more", []func(*heldWorks){held("1"), held("2"), list(true, "2")}, "name-2", 0},
		{"a list of some", []func(*heldWorks){held("1"), list(false, "2")}, "name-1", 1},
		{"created again", []func(*heldWorks){held("1"), held("2"), created("1", "name-1")}, "name-2", 0},
		{"another work of its name", []func(*heldWorks){held("1"), held("2"), created("9", "name-2")}, "name-1", 0},
		{"another work", []func(*heldWorks){held("1"), created("9", "name-9")}, "name-1", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := (&knownCluster{}).heldOf()
			for _, step := range c.steps {
				step(h)
			}
			var names []string
			for _, w := range h.byNames() {
				names = append(names, w.name)
			}
			if got := strings.Join(names, " "); got != c.held || len(h.unreported) != c.waiting || len(h.byName) != len(h.works) {
				t.Errorf("held %q and waiting for %d, want %q and %d", got, len(h.unreported), c.held, c.waiting)
			}
		})
	}
}
