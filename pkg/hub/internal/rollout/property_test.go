package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// seeds is the number of simulations per property.
const seeds = 1000

// forSeeds runs the check on many simulations. To run a single one: -run 'Name/seed_12$'.
func forSeeds(t *testing.T, check func(t *testing.T, s *simulation)) {
	t.Helper()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newSimulation(t, seed)
			check(t, s)
			if t.Failed() {
				t.Logf("strategy %+v %+v %+v, groups %+v, mandatory %v", s.from, s.from.Progressive,
					s.from.ProgressivePerGroup, s.groups, s.mandatory)
			}
		})
	}
}

// checkLists checks the invariants of the lists of every decision.
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
				t.Errorf("%s has the template, is %s and waits", name, status)
			}
			if status == rollout.ToApply && slices.Contains(d.Rollout, name) != slices.Contains(d.Start, name) {
				t.Errorf("%s is in only one of Rollout and Start", name)
			}
			done = done && (status == rollout.Succeeded || status == rollout.Skip)
		}
	}
	for _, name := range d.Start {
		if clusters[name].Status != rollout.ToApply {
			t.Errorf("%s starts and is %s", name, clusters[name].Status)
		}
	}
	for _, name := range d.StoppedBy {
		if !slices.Contains(d.Failed, name) && !slices.Contains(d.TimedOut, name) {
			t.Errorf("%s stops the rollout without having failed", name)
		}
	}
	if d.Done != done {
		t.Errorf("done is %t, want %t", d.Done, done)
	}
}

// checkLimits checks a decision against an independent implementation of the limits.
func checkLimits(t *testing.T, s *simulation, d rollout.Decision) {
	t.Helper()
	starts := func(name string) bool { return slices.Contains(d.Start, name) }
	if s.kind() == clusterv1alpha1.All {
		if len(d.Waiting) > 0 {
			t.Errorf("All lets %v wait", d.Waiting)
		}
		return
	}
	blocker := "" // why no cluster of a later unit may start
	for _, unit := range s.units() {
		var failing, inProgress, holding, starting int
		for _, name := range unit.clusters {
			failing += count(s.hasFailed(name))
			inProgress += count(s.inProgress(name))
			holding += count(s.holdsSlot(name))
			starting += count(starts(name))
		}
		if starting > 0 && blocker != "" {
			t.Errorf("%d of %v start, but %s", starting, unit.clusters, blocker)
		}
		if starting > 0 && failing > s.tolerated(unit) {
			t.Errorf("%d of %v start, but %d fail and %d may", starting, unit.clusters, failing, s.tolerated(unit))
		}
		if s.kind() == clusterv1alpha1.Progressive && !unit.mandatory {
			var present int
			for _, name := range unit.clusters {
				present += count(starts(name) && !s.clusters[name].Away)
			}
			if slots := s.slots(unit.clusters); present > 0 && present+holding > slots {
				t.Errorf("%d start, %d hold a slot, but there are %d slots", present, holding, slots)
			}
			if blocker == "" && failing <= s.tolerated(unit) && starting+holding < s.slots(unit.clusters) &&
				slices.ContainsFunc(unit.clusters, func(name string) bool {
					return slices.Contains(d.Waiting, name) && !s.clusters[name].Away
				}) && len(s.names(func(c rollout.Cluster) bool { return c.Away })) == 0 {
				t.Errorf("%d start, %d hold a slot, there are %d slots, and %v wait", starting, holding, s.slots(unit.clusters), d.Waiting)
			}
		}
		if blocker == "" {
			blocker = s.blocker(unit, failing, inProgress)
		}
	}
	// Only clusters in progress and failures may keep the others waiting.
	if blocker == "" && len(d.Waiting) > 0 && s.kind() == clusterv1alpha1.ProgressivePerGroup &&
		!slices.ContainsFunc(d.Waiting, func(name string) bool { return s.clusters[name].Away }) {
		t.Errorf("%v wait for nothing", d.Waiting)
	}
}

// blocker returns why the unit is not complete; empty if it is.
func (s *simulation) blocker(u unit, failing, inProgress int) string {
	succeeded, skipped := 0, 0
	for _, name := range u.clusters {
		c := s.clusters[name]
		succeeded += count(c.Status == rollout.Succeeded)
		skipped += count(c.Status == rollout.Skip)
		if c.Status == rollout.ToApply && !c.Away {
			return name + " has not started"
		}
	}
	switch {
	case failing > s.tolerated(u):
		return fmt.Sprintf("%d before it fail", failing)
	case inProgress > 0:
		return fmt.Sprintf("%d before it are in progress", inProgress)
	case u.mandatory && succeeded == 0 && skipped < len(u.clusters):
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

// No decision exceeds the limits, whatever the state of the clusters.
func TestPropertyLimits(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		for round := range 4 {
			s.scramble(round%2 == 1)
			d := s.decide()
			checkLists(t, s.groups, s.clusters, d)
			checkLimits(t, s, d)
		}
	})
}

// The order of the groups and of their clusters does not change the decision.
func TestPropertyDeterministic(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		s.scramble(true)
		want := s.decide()
		for i := range s.groups {
			s.groups[i].Clusters = slices.Clone(s.groups[i].Clusters)
			shuffle(s.random, s.groups[i].Clusters)
		}
		shuffle(s.random, s.groups)
		if diff := cmp.Diff(want, s.decide()); diff != "" {
			t.Errorf("decision of the same in another order (-want +got):\n%s", diff)
		}
	})
}

func shuffle[T any](random *rand.Rand, items []T) {
	random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
}

// The decision does not change between now and RequeueAt, and starts no cluster twice.
func TestPropertyRequeueAt(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		s.scramble(true)
		first := s.decide()
		s.apply(first)
		second := s.decide()
		if len(second.Start) > 0 {
			t.Errorf("started %v, and again %v", first.Start, second.Start)
		}
		until := second.RequeueAt
		if until.IsZero() {
			until = s.now.Add(9999 * time.Hour)
		} else if !until.After(s.now) {
			t.Fatalf("RequeueAt is %s, which is not after %s", until, s.now)
		}
		s.now = s.now.Add(time.Duration(s.random.Int64N(int64(until.Sub(s.now)))))
		if diff := cmp.Diff(second, s.decide()); diff != "" {
			t.Errorf("at %s, before %s (-second +later):\n%s", s.now, until, diff)
		}
	})
}

// A rollout finishes when its clusters succeed, even if they fail, time out or go away before.
// Every decision on the way is within the limits.
func TestPropertyFinishes(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		trouble := s.random.IntN(3) // none; failures; failures and clusters that go away
		started := map[string]bool{}
		for i := range 100 + 60*len(s.clusters) {
			d := s.decide()
			checkLists(t, s.groups, s.clusters, d)
			checkLimits(t, s, d)
			for name := range started {
				if !slices.Contains(d.Rollout, name) {
					t.Fatalf("%s had the template and is not in Rollout", name)
				}
			}
			if d.Done {
				return
			}
			for _, name := range d.Start {
				started[name] = true
			}
			s.apply(d)
			if i > 50*len(s.clusters) {
				trouble = 0
			}
			s.step(t, d, trouble)
			if t.Failed() {
				return
			}
		}
		t.Errorf("not done: %s", format(s.decide()))
	})
}

// step advances the time and the state of one cluster.
func (s *simulation) step(t *testing.T, d rollout.Decision, trouble int) {
	t.Helper()
	s.now = s.now.Add(time.Duration(s.random.IntN(300)) * time.Second)
	onTheWay := s.names(func(c rollout.Cluster) bool {
		return !c.Away && (c.Status == rollout.Progressing || c.Status == rollout.Failed)
	})
	away := s.names(func(c rollout.Cluster) bool { return c.Away })
	switch roll := s.random.IntN(10); {
	case trouble == 2 && roll == 0:
		if here := s.names(func(c rollout.Cluster) bool { return !c.Away }); len(here) > 0 {
			s.setAway(here[s.random.IntN(len(here))], true)
		}
	case trouble > 0 && roll == 1 && len(onTheWay) > 0:
		s.set(onTheWay[s.random.IntN(len(onTheWay))], rollout.Failed)
	case len(onTheWay) > 0:
		s.set(onTheWay[s.random.IntN(len(onTheWay))], rollout.Succeeded)
	case len(away) > 0:
		s.setAway(away[s.random.IntN(len(away))], false)
	case !d.RequeueAt.IsZero():
		if d.RequeueAt.After(s.now) {
			s.now = d.RequeueAt
		}
	case len(d.Start) == 0:
		t.Errorf("stuck: %s", format(d))
	}
}

// 16 times the clusters take about 21 times as much of the processor. A quadratic algorithm would take 256 times as
// much.
func TestManyClusters(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, from := range []clusterv1alpha1.RolloutStrategy{
		{}, progressive("10%", config(time.Minute, "10m", "100%")), perGroup(config(time.Minute, "10m", "100%")),
	} {
		strategy, err := rollout.Parse(&from)
		if err != nil {
			t.Fatal(err)
		}
		decide := func(n int) time.Duration {
			var took time.Duration
			runs := 0
			for ; took < 50*time.Millisecond; runs++ { // the kernel counts in steps of some milliseconds
				groups, clusters := manyClusters(n)
				start := spent(t)
				d := strategy.Decide(groups, clusters, now)
				took += spent(t) - start
				if got := len(d.Rollout) + len(d.Waiting); got != n {
					t.Fatalf("%s: %d of %d clusters decided on", from.Kind(), got, n)
				}
			}
			return took / time.Duration(runs)
		}
		if few, many := decide(2_000), decide(32_000); many > 100*few {
			t.Errorf("%s: 2,000 clusters take %s, 32,000 take %s", from.Kind(), few, many)
		}
	}
}

// spent returns the processor time that the calling thread has taken, however busy the machine is.
func spent(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
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
