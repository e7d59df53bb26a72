package rollout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

func TestRevisionsAfter(t *testing.T) {
	failed := rollout.Decision{Rollout: []string{"a"}, Exceeded: []string{"a"}}
	proven := rollout.Decision{Rollout: []string{"a"}, Proven: true}
	going := rollout.Decision{Rollout: []string{"a"}}
	type revisions = rollout.Revisions
	for name, c := range map[string]struct {
		before    revisions
		decisions []rollout.Decision
		want      revisions
	}{
		"on its way":                         {revisions{2, 1, 0}, []rollout.Decision{going}, revisions{2, 1, 0}},
		"proven":                             {revisions{2, 1, 0}, []rollout.Decision{proven, {}}, revisions{2, 2, 0}},
		"proven in one placement of two":     {revisions{2, 1, 0}, []rollout.Decision{proven, going}, revisions{2, 1, 0}},
		"no template for some of another":    {revisions{2, 1, 0}, []rollout.Decision{proven, {Unrendered: 1}}, revisions{2, 1, 0}},
		"no clusters":                        {revisions{2, 1, 0}, []rollout.Decision{{}}, revisions{2, 1, 0}},
		"failed":                             {revisions{2, 1, 0}, []rollout.Decision{going, failed}, revisions{2, 1, 1}},
		"failed, nothing to go back to":      {revisions{2, 0, 0}, []rollout.Decision{failed}, revisions{2, 0, 0}},
		"fails later than it succeeded":      {revisions{2, 2, 0}, []rollout.Decision{failed}, revisions{2, 2, 0}},
		"on the way back":                    {revisions{3, 1, 1}, []rollout.Decision{going}, revisions{3, 1, 1}},
		"back":                               {revisions{3, 1, 1}, []rollout.Decision{proven}, revisions{3, 1, 1}},
		"the way back fails":                 {revisions{3, 1, 1}, []rollout.Decision{failed}, revisions{3, 0, 1}},
		"the way back fails, and then works": {revisions{3, 0, 1}, []rollout.Decision{proven}, revisions{3, 1, 1}},
	} {
		if got := c.before.After(c.decisions); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// world is a set whose rollouts go back when they fail: its revisions and those that its works have and its clusters
// have received, some of them bad. The hub keeps nothing but these.
type world struct {
	*simulation
	revisions rollout.Revisions
	last      int64                    // the number of the newest template
	bad       map[int64]map[string]int // by revision and cluster: 1 fails, 2 never answers
	work      map[string]int64         // the revision that a work has; 0: there is none
	received  map[string]int64
	since     map[string]time.Time // of the status with the revision of the work
	proven    map[int64]bool       // revisions that have succeeded everywhere they were
	recalled  bool                 // the hub has decided about all clusters since the set went back
	wentBack  bool
}

// give gives the set a new template, which may be bad.
func (w *world) give() {
	w.last++
	w.revisions.Own, w.revisions.Served, w.recalled = w.last, 0, false
	w.bad[w.last] = map[string]int{}
	kind := w.random.IntN(4) // 0, 1: it works
	for _, name := range w.everyone() {
		if kind == 2 || kind == 3 && w.random.IntN(3) == 0 {
			w.bad[w.last][name] = 1
			if w.deadline > 0 && w.random.IntN(2) == 0 {
				w.bad[w.last][name] = 2
			}
		}
	}
}

func (w *world) everyone() []string {
	return w.names(func(rollout.Cluster) bool { return true })
}

// observe sets the states of the clusters with the current template.
func (w *world) observe() {
	current := w.revisions.Current()
	for _, name := range w.everyone() {
		c := rollout.Cluster{Away: w.clusters[name].Away, PresenceSince: w.clusters[name].PresenceSince, Since: w.since[name]}
		switch work := w.work[name]; {
		case work != current:
			c.Since, c.Abandoned = time.Time{}, w.revisions.Served != 0 && work == w.revisions.Own
		case w.received[name] != work || w.bad[work][name] == 2:
			c.Status = rollout.Progressing
		case w.bad[work][name] == 1:
			c.Status = rollout.Failed
		default:
			c.Status = rollout.Succeeded
		}
		w.clusters[name] = c
	}
}

// receive delivers the work of a cluster that is present.
func (w *world) receive(name string) {
	if w.work[name] != w.received[name] {
		w.received[name], w.since[name] = w.work[name], w.now
	}
}

// reconcile decides and does it, unless the hub stops on the way. It reports whether something changed.
func (w *world) reconcile(t *testing.T, stops bool) (decision rollout.Decision, changed bool) {
	t.Helper()
	w.observe()
	d := w.decide()
	checkLists(t, w.groups, w.clusters, d)
	within := d
	within.Start = slices.DeleteFunc(slices.Clone(d.Start), func(name string) bool { return w.clusters[name].Away && w.clusters[name].Abandoned })
	checkLimits(t, w.simulation, within)
	next := w.revisions.After([]rollout.Decision{d})
	w.check(t, next)
	if stops && w.random.IntN(2) == 0 {
		return d, true
	}
	if before := w.revisions; next != before {
		w.revisions = next
		if next.Served != before.Served {
			w.wentBack = true
			return d, true
		}
	}
	for _, name := range d.Start {
		if stops && w.random.IntN(3) == 0 {
			return d, true
		}
		w.work[name], w.since[name] = w.revisions.Current(), w.now
		if !w.clusters[name].Away {
			w.receive(name)
		}
	}
	w.recalled = w.revisions.Served != 0
	return d, len(d.Start) > 0
}

// check checks what a decision makes of the revisions.
func (w *world) check(t *testing.T, next rollout.Revisions) {
	t.Helper()
	before := w.revisions
	if next.Own != before.Own || before.Served != 0 && next.Served != before.Served {
		t.Fatalf("%+v after %+v: it went on from where it had gone back to", next, before)
	}
	if next.Served != 0 && !w.proven[next.Served] {
		t.Fatalf("%+v: went back to what was not proven", next)
	}
	if next.Proven == before.Proven || next.Proven == 0 {
		return
	}
	w.proven[next.Proven] = true
	for _, name := range w.everyone() {
		if bad := w.bad[next.Proven][name] != 0; !w.clusters[name].Away && (bad || w.received[name] != next.Proven) {
			t.Fatalf("%+v is proven, but %s has received %d, bad %t", next, name, w.received[name], bad)
		}
	}
}

// presence lets a cluster go away or come back.
func (w *world) presence(t *testing.T, name string, away bool) {
	t.Helper()
	w.setAway(name, away)
	if away {
		return
	}
	if own := w.revisions.Own; w.recalled && w.work[name] == own && w.received[name] != own {
		t.Fatalf("%s comes back and receives %d, which the set has gone back from: %+v", name, own, w.revisions)
	}
	w.receive(name)
}

// TestSimulationGoesBack: 1,000 sets get templates, some of them bad, while clusters come and go and the hub stops
// between its writes. No decision exceeds the limits, no cluster that was away receives a template that the set has gone
// back from, and every cluster ends on the revision that the rules say.
func TestSimulationGoesBack(t *testing.T) {
	ran, wentBack, there := 0, 0, 0
	forSeeds(t, func(t *testing.T, s *simulation) {
		w := &world{
			simulation: s, bad: map[int64]map[string]int{}, work: map[string]int64{}, received: map[string]int64{},
			since: map[string]time.Time{}, proven: map[int64]bool{},
		}
		w.give()
		clear(w.bad[1])
		for range 60 + w.random.IntN(100) {
			w.reconcile(t, w.random.IntN(4) == 0)
			w.now = w.now.Add(time.Duration(w.random.IntN(300)) * time.Second)
			all := w.everyone()
			switch roll := w.random.IntN(20); {
			case len(all) == 0:
			case roll < 3:
				name := all[w.random.IntN(len(all))]
				w.presence(t, name, !w.clusters[name].Away)
			case roll == 3:
				w.give()
			case roll == 4 && w.random.IntN(4) == 0: // a person tries the failed template again
				w.revisions.Served, w.recalled = 0, false
			}
		}
		for _, name := range w.everyone() {
			if w.clusters[name].Away {
				w.presence(t, name, false)
			}
		}
		w.finish(t)
		ran++
		wentBack += count(w.wentBack)
		there += count(w.revisions.Served != 0)
	})
	t.Logf("%d of %d sets went back, %d ended there", wentBack, ran, there)
	if ran == seeds && wentBack < seeds/4 {
		t.Error("too few to prove anything")
	}
}

// finish reconciles until nothing changes, and checks where every cluster is.
func (w *world) finish(t *testing.T) {
	t.Helper()
	var d rollout.Decision
	for changed, rounds := true, 0; changed || !d.RequeueAt.IsZero(); rounds++ {
		if rounds > 1000 {
			t.Fatalf("no end: %s", format(d))
		}
		d, changed = w.reconcile(t, false)
		if !changed && !d.RequeueAt.IsZero() {
			w.now = d.RequeueAt
		}
	}
	if r := w.revisions; len(d.Exceeded) > 0 && r.Served == 0 && r.Proven != 0 && r.Proven != r.Own {
		t.Errorf("%v fail, more than allowed, and the set stays: %+v", d.Exceeded, r)
	}
	failing := len(d.Failed) + len(d.TimedOut)
	for _, name := range w.everyone() {
		if w.received[name] != w.work[name] {
			t.Errorf("%s has not received its work", name)
		}
		if w.work[name] != w.revisions.Current() && failing == 0 {
			t.Errorf("%s ends on %d, but nothing fails: %+v", name, w.work[name], w.revisions)
		}
	}
}
