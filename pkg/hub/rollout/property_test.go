package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/rollout"
)

// seeds is how many worlds each property is tried on.
const seeds = 1000

// forSeeds runs the check on many worlds. Each has a number with which it can be run alone: -run 'Name/seed_12$'.
func forSeeds(t *testing.T, check func(t *testing.T, w *world)) {
	t.Helper()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newWorld(t, seed)
			check(t, w)
			if t.Failed() {
				t.Logf("strategy %+v %+v %+v, groups %+v, mandatory %v", w.from, w.from.Progressive,
					w.from.ProgressivePerGroup, w.groups, w.mandatory)
			}
		})
	}
}

// checkLists checks what holds for the lists of every decision.
func checkLists(t *testing.T, groups []rollout.Group, clusters map[string]rollout.Cluster, d rollout.Decision) {
	t.Helper()
	seen := map[string]int{}
	for _, name := range slices.Concat(d.Rollout, d.Waiting) {
		seen[name]++
	}
	done := true
	for _, group := range groups {
		for _, name := range group.Clusters {
			status := clusters[name].Status
			if want := map[bool]int{true: 0, false: 1}[status == rollout.Skip]; seen[name] != want {
				t.Errorf("%s (%s) is %d times in rollout and waiting", name, status, seen[name])
			}
			if status != rollout.ToApply && slices.Contains(d.Waiting, name) {
				t.Errorf("%s has the template, is %s and shall wait", name, status)
			}
			if status == rollout.ToApply && slices.Contains(d.Rollout, name) != slices.Contains(d.Begin, name) {
				t.Errorf("%s is to have the template and not to get it, or the other way round", name)
			}
			done = done && (status == rollout.Succeeded || status == rollout.Skip)
		}
	}
	for _, name := range d.Begin {
		if clusters[name].Status != rollout.ToApply {
			t.Errorf("%s is begun with and %s", name, clusters[name].Status)
		}
	}
	for _, name := range d.StoppedBy {
		if !slices.Contains(d.Failed, name) && !slices.Contains(d.TimedOut, name) {
			t.Errorf("%s stops the rollout and did not fail", name)
		}
	}
	if d.Done != done {
		t.Errorf("done is %t, want %t", d.Done, done)
	}
}

// checkLimits checks a decision against the rules, read one by one from scratch.
func checkLimits(t *testing.T, w *world, d rollout.Decision) {
	t.Helper()
	begun := func(name string) bool { return slices.Contains(d.Begin, name) }
	if w.kind() == clusterv1alpha1.All {
		if len(d.Waiting) > 0 {
			t.Errorf("All lets %v wait", d.Waiting)
		}
		return
	}
	open := "" // why nothing of a later domain may be begun with
	for _, domain := range w.domains() {
		var failing, settling, holding, begin int
		for _, name := range domain.clusters {
			failing += count(w.failing(name))
			settling += count(w.settling(name))
			holding += count(w.holdsPlace(name))
			begin += count(begun(name))
		}
		if begin > 0 && open != "" {
			t.Errorf("%d of %v begun with, but %s", begin, domain.clusters, open)
		}
		if begin > 0 && failing > w.tolerated(domain) {
			t.Errorf("%d of %v begun with, but %d fail and %d may", begin, domain.clusters, failing, w.tolerated(domain))
		}
		if w.kind() == clusterv1alpha1.Progressive && !domain.mandatory {
			var present int
			for _, name := range domain.clusters {
				present += count(begun(name) && !w.clusters[name].Away)
			}
			if places := w.places(domain.clusters); present > 0 && present+holding > places {
				t.Errorf("%d begun with, %d hold a place, but there are %d", present, holding, places)
			}
			if open == "" && failing <= w.tolerated(domain) && begin+holding < w.places(domain.clusters) &&
				slices.ContainsFunc(domain.clusters, func(name string) bool {
					return slices.Contains(d.Waiting, name) && !w.clusters[name].Away
				}) && len(w.names(func(c rollout.Cluster) bool { return c.Away })) == 0 {
				t.Errorf("%d begun with, %d hold a place, there are %d, and %v wait", begin, holding, w.places(domain.clusters), d.Waiting)
			}
		}
		if open == "" {
			open = w.open(domain, failing, settling)
		}
	}
	// What was begun and what failed is all that may hold the rest up: with neither, something is begun with.
	if open == "" && len(d.Waiting) > 0 && w.kind() == clusterv1alpha1.ProgressivePerGroup &&
		!slices.ContainsFunc(d.Waiting, func(name string) bool { return w.clusters[name].Away }) {
		t.Errorf("%v wait for nothing", d.Waiting)
	}
}

// open says why the domain is not done.
func (w *world) open(d domain, failing, settling int) string {
	succeeded, skipped := 0, 0
	for _, name := range d.clusters {
		c := w.clusters[name]
		succeeded += count(c.Status == rollout.Succeeded)
		skipped += count(c.Status == rollout.Skip)
		if c.Status == rollout.ToApply && !c.Away {
			return name + " has not begun"
		}
	}
	switch {
	case failing > w.tolerated(d):
		return fmt.Sprintf("%d before it fail", failing)
	case settling > 0:
		return fmt.Sprintf("%d before it settle", settling)
	case d.mandatory && succeeded == 0 && skipped < len(d.clusters):
		return "none before it succeeded"
	}
	return ""
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Whatever state a fleet is in, no decision goes beyond what is allowed.
func TestPropertyLimits(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		for round := range 4 {
			w.scramble(round%2 == 1)
			d := w.decide()
			checkLists(t, w.groups, w.clusters, d)
			checkLimits(t, w, d)
		}
	})
}

// The order of groups and of the clusters in them changes nothing.
func TestPropertyDeterministic(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		w.scramble(true)
		want := w.decide()
		for i := range w.groups {
			w.groups[i].Clusters = slices.Clone(w.groups[i].Clusters)
			shuffle(w.random, w.groups[i].Clusters)
		}
		shuffle(w.random, w.groups)
		if diff := cmp.Diff(want, w.decide()); diff != "" {
			t.Errorf("decision of the same in another order (-want +got):\n%s", diff)
		}
	})
}

func shuffle[T any](random *rand.Rand, items []T) {
	random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
}

// Between now and Again, nothing is to be decided; and what a decision begins with, it does not begin with twice.
func TestPropertyAgain(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		w.scramble(true)
		first := w.decide()
		w.begin(first)
		settled := w.decide()
		if len(settled.Begin) > 0 {
			t.Errorf("begun with %v, and at once with %v", first.Begin, settled.Begin)
		}
		until := settled.Again
		if until.IsZero() {
			until = w.now.Add(9999 * time.Hour)
		} else if !until.After(w.now) {
			t.Fatalf("again at %s, which is not after %s", until, w.now)
		}
		w.now = w.now.Add(time.Duration(w.random.Int64N(int64(until.Sub(w.now)))))
		if diff := cmp.Diff(settled, w.decide()); diff != "" {
			t.Errorf("at %s, before %s (-settled +later):\n%s", w.now, until, diff)
		}
	})
}

// With every step of a rollout within its limits, it comes to its end when clusters succeed, also if they fail, time
// out or go away for a while before they do.
func TestPropertyFinishes(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		trouble := w.random.IntN(3) // none; failures; failures and clusters that go away
		begun := map[string]bool{}
		for step := range 100 + 60*len(w.clusters) {
			d := w.decide()
			checkLists(t, w.groups, w.clusters, d)
			checkLimits(t, w, d)
			for name := range begun {
				if !slices.Contains(d.Rollout, name) {
					t.Fatalf("%s had the template and shall not have it", name)
				}
			}
			if d.Done {
				return
			}
			for _, name := range d.Begin {
				begun[name] = true
			}
			w.begin(d)
			if step > 50*len(w.clusters) {
				trouble = 0
			}
			w.live(t, d, trouble)
			if t.Failed() {
				return
			}
		}
		t.Errorf("not done: %s", shown(w.decide()))
	})
}

// live lets something happen: time goes by, and a cluster takes a step.
func (w *world) live(t *testing.T, d rollout.Decision, trouble int) {
	t.Helper()
	w.now = w.now.Add(time.Duration(w.random.IntN(300)) * time.Second)
	onTheWay := w.names(func(c rollout.Cluster) bool {
		return !c.Away && (c.Status == rollout.Progressing || c.Status == rollout.Failed)
	})
	away := w.names(func(c rollout.Cluster) bool { return c.Away })
	switch roll := w.random.IntN(10); {
	case trouble == 2 && roll == 0:
		if here := w.names(func(c rollout.Cluster) bool { return !c.Away }); len(here) > 0 {
			w.setAway(here[w.random.IntN(len(here))], true)
		}
	case trouble > 0 && roll == 1 && len(onTheWay) > 0:
		w.set(onTheWay[w.random.IntN(len(onTheWay))], rollout.Failed)
	case len(onTheWay) > 0:
		w.set(onTheWay[w.random.IntN(len(onTheWay))], rollout.Succeeded)
	case len(away) > 0:
		w.setAway(away[w.random.IntN(len(away))], false)
	case !d.Again.IsZero():
		if d.Again.After(w.now) {
			w.now = d.Again
		}
	case len(d.Begin) == 0:
		t.Errorf("stuck: %s", shown(d))
	}
}

// 16 times the clusters take about 21 times the time; a quadratic step anywhere would make that 256.
func TestManyClusters(t *testing.T) {
	for _, from := range []clusterv1alpha1.RolloutStrategy{
		{}, progressive("10%", config(time.Minute, "10m", "100%")), perGroup(config(time.Minute, "10m", "100%")),
	} {
		strategy, err := rollout.Parse(&from)
		if err != nil {
			t.Fatal(err)
		}
		best := func(n int) time.Duration { // of three: others use this machine too
			groups, clusters := manyClusters(n)
			fastest := time.Hour
			for range 3 {
				start := time.Now()
				d := strategy.Decide(groups, clusters, now)
				fastest = min(fastest, time.Since(start))
				if got := len(d.Rollout) + len(d.Waiting); got != n {
					t.Fatalf("%s: %d of %d clusters decided on", from.Kind(), got, n)
				}
			}
			return fastest
		}
		if few, many := best(2_000), best(32_000); many > 100*few {
			t.Errorf("%s: 2,000 clusters take %s, 32,000 take %s", from.Kind(), few, many)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		groups, clusters := manyClusters(n)
		from := progressive("10%", config(time.Minute, "10m", "100%"))
		strategy, err := rollout.Parse(&from)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				strategy.Decide(groups, clusters, now)
			}
		})
	}
}
