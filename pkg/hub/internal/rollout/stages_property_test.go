package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// stagedSimulation is a simulation with a random plan. Stages select clusters by the label stage, and zones are of whole hours.
type stagedSimulation struct {
	*simulation
	spec     workwirev1alpha1.RolloutPlanSpec
	labels   map[string]map[string]string // by cluster
	zones    map[string]int               // hours east of UTC, by cluster; none: no claim
	opens    int                          // hour at which the window opens; there is one if hours is not 0
	hours    int
	approved map[string]bool
	obeys    map[string]bool           // clusters that apply at a time what they have before
	later    map[string]rollout.Window // when those do that have it
}

func newStagedSimulation(t *testing.T, seed uint64) *stagedSimulation {
	t.Helper()
	s := &stagedSimulation{simulation: newSimulation(t, seed), labels: map[string]map[string]string{}, zones: map[string]int{}, approved: map[string]bool{}, obeys: map[string]bool{}, later: map[string]rollout.Window{}}
	for i := range s.random.IntN(4) {
		name := fmt.Sprintf("s%d", i)
		stage := workwirev1alpha1.RolloutStage{
			Name: name, ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": name}},
			Soak: metav1.Duration{Duration: time.Duration(s.random.IntN(3)) * 7 * time.Minute},
		}
		if s.random.IntN(3) == 0 {
			stage.Apart = "zone"
		}
		if s.random.IntN(3) == 0 {
			stage.Approval = workwirev1alpha1.ApprovalRequired
		}
		s.spec.Stages = append(s.spec.Stages, stage)
	}
	if s.random.IntN(3) == 0 {
		s.opens, s.hours = s.random.IntN(24), 1+s.random.IntN(8)
		s.spec.Windows = []workwirev1alpha1.RolloutWindow{{
			Schedule: fmt.Sprintf("0 %d * * *", s.opens), Duration: metav1.Duration{Duration: time.Duration(s.hours) * time.Hour}, TimeZoneClaim: "zone", TimeZone: "UTC",
		}}
		s.spec.StageAhead.Duration = time.Duration(s.random.IntN(3)) * 4 * time.Hour
	}
	for range s.random.IntN(3) {
		from := s.now.Add(time.Duration(s.random.IntN(200)-60) * time.Minute)
		s.spec.Freezes = append(s.spec.Freezes, workwirev1alpha1.RolloutFreeze{
			From: metav1.NewTime(from), To: metav1.NewTime(from.Add(time.Duration(1+s.random.IntN(100)) * time.Minute)),
		})
	}
	for _, name := range s.names(func(rollout.Cluster) bool { return true }) {
		labels := map[string]string{"stage": fmt.Sprintf("s%d", s.random.IntN(5))}
		if s.random.IntN(4) > 0 {
			labels["zone"] = string(rune('x' + s.random.IntN(3)))
		}
		s.labels[name] = labels
		if s.random.IntN(3) > 0 {
			s.zones[name] = s.random.IntN(20) - 10
		}
		s.obeys[name] = s.random.IntN(4) > 0
	}
	return s
}

func (s *stagedSimulation) site(name string) rollout.Site {
	return rollout.Site{Labels: s.labels[name], Claim: func(claim string) string {
		if claim == clusterv1.ClaimApplyAt && s.obeys[name] {
			return clusterv1.ClaimApplyAtObeyed
		}
		if hours, ok := s.zones[name]; ok {
			return fmt.Sprintf("Etc/GMT%+d", -hours) // whose sign is the other way round
		}
		return ""
	}}
}

// apply gives the template to the clusters that start now, or tells them when to apply it. Those that do not start any more are told to wait.
func (s *stagedSimulation) apply(staged rollout.Staged) {
	d := staged.Decisions[0]
	now := d
	now.Start = slices.DeleteFunc(slices.Clone(d.Start), func(name string) bool { _, later := staged.Later[name]; return later })
	s.simulation.apply(now)
	s.later = map[string]rollout.Window{}
	for name, c := range s.clusters {
		if w, later := staged.Later[name]; later {
			s.later[name], c.Staged = w, true
		} else if c.Status != rollout.ToApply {
			c.Staged = false
		}
		s.clusters[name] = c
	}
}

// advance has clusters apply what they have for this time, also while they are away.
func (s *stagedSimulation) advance() {
	for name, w := range s.later {
		if !s.now.Before(w.Start) {
			c := s.clusters[name]
			c.Status, c.Since, c.Staged = rollout.Progressing, w.Start, false
			s.clusters[name] = c
			delete(s.later, name)
		}
	}
}

// decide decides as a hub does that has just started.
func (s *stagedSimulation) decide(t *testing.T) rollout.Staged {
	t.Helper()
	s.advance()
	plan, err := rollout.ParsePlan(&s.spec)
	if err != nil {
		t.Fatal(err)
	}
	return plan.Decide(rollout.Situation{
		Targets: []rollout.Target{{Strategy: s.strategy, Groups: s.groups, Clusters: s.clusters}},
		Site:    s.site, Approved: func(stage string) bool { return s.approved[stage] }, Now: s.now,
	})
}

// stage returns the index of the stage of a cluster.
func (s *stagedSimulation) stage(name string) int {
	i := slices.IndexFunc(s.spec.Stages, func(stage workwirev1alpha1.RolloutStage) bool { return stage.Name == s.labels[name]["stage"] })
	if i < 0 {
		return len(s.spec.Stages)
	}
	return i
}

// forbidden returns why a cluster must not start, computed independently of the package; empty if it may. Of earlier
// stages it considers present clusters.
func (s *stagedSimulation) forbidden(name string, starting []string, later map[string]rollout.Window) string {
	applies, until := s.now, s.now
	w, isLater := later[name]
	if isLater {
		applies, until = w.Start, w.End.Add(-1)
		switch ahead := w.Start.Sub(s.now); {
		case !s.obeys[name]:
			return "its agent would apply it at once"
		case ahead <= 0 || ahead > s.spec.StageAhead.Duration:
			return fmt.Sprintf("its window is in %s", ahead)
		case w.End.Sub(w.Start) > time.Duration(s.hours)*time.Hour || !w.End.After(w.Start):
			return fmt.Sprintf("its window is %v", w)
		}
	}
	for _, f := range s.spec.Freezes {
		if !until.Before(f.From.Time) && s.now.Before(f.To.Time) {
			return "there is a freeze"
		}
	}
	if s.hours > 0 {
		local := applies.UTC().Add(time.Duration(s.zones[name]) * time.Hour)
		if (local.Hour()-s.opens+24)%24 >= s.hours {
			return fmt.Sprintf("it is %s there, and the window is %d hours from %d", local, s.hours, s.opens)
		}
		if s.clusters[name].Away && (!s.clusters[name].Staged || !isLater) {
			return "it is away, and there are windows"
		}
	}
	at := s.stage(name)
	if at < len(s.spec.Stages) {
		if stage := s.spec.Stages[at]; stage.Approval != "" && !s.approved[stage.Name] {
			return "its stage is not approved"
		}
	}
	succeeded, before := 0, 0
	failing, sizes := map[int]int{}, map[int]int{}
	for other, c := range s.clusters {
		earlier := s.stage(other)
		if earlier >= at || c.Status == rollout.Skip {
			continue
		}
		before++
		sizes[earlier]++
		failing[earlier] += count(s.hasFailed(other))
		soak := s.spec.Stages[earlier].Soak.Duration
		switch {
		case c.Status == rollout.ToApply && !c.Away:
			return other + " of an earlier stage does not have the template"
		case s.inProgress(other):
			return other + " of an earlier stage is in progress"
		case c.Status == rollout.Succeeded && s.now.Sub(c.Since) < soak:
			return other + " of an earlier stage soaks"
		}
		succeeded += count(c.Status == rollout.Succeeded)
	}
	for earlier, n := range failing {
		if s.kind() != clusterv1alpha1.ProgressivePerGroup && n > resolve(s.options.MaxFailures, sizes[earlier]) {
			return fmt.Sprintf("%d of stage %d fail", n, earlier)
		}
	}
	if before > 0 && succeeded == 0 {
		return "no cluster of an earlier stage has succeeded"
	}
	if at < len(s.spec.Stages) && s.spec.Stages[at].Apart != "" {
		zone := func(name string) string { return s.labels[name]["zone"] }
		for other := range s.clusters {
			if s.stage(other) == at && zone(other) != zone(name) && (s.holdsSlot(other) || slices.Contains(starting, other)) {
				return other + " of another zone is in progress, or starts too"
			}
		}
	}
	return ""
}

func (s *stagedSimulation) check(t *testing.T, staged rollout.Staged) rollout.Decision {
	t.Helper()
	d := staged.Decisions[0]
	checkLists(t, s.groups, s.clusters, d)
	for _, name := range d.Start {
		if why := s.forbidden(name, d.Start, staged.Later); why != "" {
			t.Errorf("%s of stage %d starts at %s, but %s", name, s.stage(name), s.now, why)
		}
	}
	return d
}

// holdSome has some clusters hold the template that they have not applied.
func (s *stagedSimulation) holdSome() {
	for _, name := range s.names(func(c rollout.Cluster) bool { return c.Status == rollout.ToApply }) {
		c := s.clusters[name]
		c.Staged = s.obeys[name] && s.random.IntN(3) == 0
		s.clusters[name] = c
	}
}

// forStaged runs the check on many simulations with plans.
func forStaged(t *testing.T, check func(t *testing.T, s *stagedSimulation)) {
	t.Helper()
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			s := newStagedSimulation(t, seed)
			check(t, s)
			if t.Failed() {
				t.Logf("strategy %+v %+v %+v, plan %+v, labels %v", s.from, s.from.Progressive, s.from.ProgressivePerGroup, s.spec, s.labels)
			}
		})
	}
}

// No cluster starts that its plan keeps back, whatever the states of the clusters.
func TestPropertyStages(t *testing.T) {
	forStaged(t, func(t *testing.T, s *stagedSimulation) {
		for round := range 4 {
			s.now = s.now.Add(time.Duration(s.random.IntN(100)) * time.Minute)
			s.scramble(round%2 == 1)
			s.holdSome()
			s.approved["s0"], s.approved["s1"] = s.random.IntN(2) == 0, s.random.IntN(2) == 0
			s.check(t, s.decide(t))
		}
	})
}

// Without a plan's restrictions, stages decide as the strategy alone.
func TestPropertyPlanWithoutStages(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		s.scramble(true)
		want := s.decide()
		plan, err := rollout.ParsePlan(&workwirev1alpha1.RolloutPlanSpec{})
		if err != nil {
			t.Fatal(err)
		}
		got := plan.Decide(rollout.Situation{
			Targets: []rollout.Target{{Strategy: s.strategy, Groups: s.groups, Clusters: s.clusters}},
			Site:    func(string) rollout.Site { return rollout.Site{} }, Now: s.now,
		}).Decisions[0]
		if len(want.Exceeded) > 0 { // a plan lets nothing start then
			if len(got.Start) > 0 {
				t.Errorf("%v start", got.Start)
			}
			return
		}
		got.RequeueAt = want.RequeueAt // a plan may have others
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with an empty plan (-without +with):\n%s", diff)
		}
	})
}

// The decision does not change between now and RequeueAt, and starts no cluster twice.
func TestPropertyStagesRequeueAt(t *testing.T) {
	forStaged(t, func(t *testing.T, s *stagedSimulation) {
		s.scramble(true)
		s.holdSome()
		s.approved["s0"] = true
		s.apply(s.decide(t))
		second := s.decide(t)
		if len(second.Decisions[0].Start) > len(second.Later) {
			t.Errorf("started again: %v, of which %v later", second.Decisions[0].Start, second.Later)
		}
		until := second.Decisions[0].RequeueAt
		if until.IsZero() {
			until = s.now.Add(999 * time.Hour)
		} else if !until.After(s.now) {
			t.Fatalf("RequeueAt is %s, which is not after %s", until, s.now)
		}
		s.now = s.now.Add(time.Duration(s.random.Int64N(int64(until.Sub(s.now)))))
		again := s.decide(t)
		if diff := cmp.Diff(second.Later, again.Later); diff != "" {
			t.Errorf("windows at %s, before %s (-second +later):\n%s", s.now, until, diff)
		}
		later := again.Decisions[0]
		later.RequeueAt = second.Decisions[0].RequeueAt // a freeze that has begun since hides the opening of a window
		if diff := cmp.Diff(second.Decisions[0], later); diff != "" {
			t.Errorf("at %s, before %s (-second +later):\n%s", s.now, until, diff)
		}
	})
}

// A rollout by a plan finishes when its clusters succeed and its stages are approved, even if clusters fail or go away
// before. Every decision on the way is within the plan.
func TestPropertyStagesFinish(t *testing.T) {
	forStaged(t, func(t *testing.T, s *stagedSimulation) {
		trouble := s.random.IntN(3)
		for i := range 200 + 80*len(s.clusters) {
			staged := s.decide(t)
			d := s.check(t, staged)
			if d.Done {
				return
			}
			s.apply(staged)
			if i > 50*len(s.clusters) {
				trouble = 0
			}
			if staged.Hold.Reason == workv1alpha1.ReasonWaitsForApproval {
				for _, stage := range staged.Stages {
					if !stage.Complete {
						s.approved[stage.Name] = true
						break
					}
				}
				continue
			}
			s.step(t, d, trouble)
			if t.Failed() {
				return
			}
		}
		t.Errorf("not done: %s", format(s.decide(t).Decisions[0]))
	})
}

func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		groups, clusters := manyClusters(n)
		from := progressive("10%", config(time.Minute, "10m", "100%"))
		strategy, err := rollout.Parse(&from)
		if err != nil {
			b.Fatal(err)
		}
		spec := workwirev1alpha1.RolloutPlanSpec{
			Stages: []workwirev1alpha1.RolloutStage{
				{Name: "a", ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "0"}}, Soak: metav1.Duration{Duration: time.Hour}},
				{Name: "b", ClusterSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "1"}}, Apart: "zone"},
			},
			Windows: []workwirev1alpha1.RolloutWindow{{Schedule: "0 1 * * *", Duration: metav1.Duration{Duration: 20 * time.Hour}, TimeZoneClaim: "zone"}},
		}
		plan, err := rollout.ParsePlan(&spec)
		if err != nil {
			b.Fatal(err)
		}
		sites := map[string]rollout.Site{}
		for name := range clusters {
			i := len(sites)
			sites[name] = rollout.Site{
				Labels: map[string]string{"stage": fmt.Sprint(i % 3), "zone": fmt.Sprint(i % 5)},
				Claim:  func(string) string { return fmt.Sprintf("Etc/GMT+%d", i%12) },
			}
		}
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				plan.Decide(rollout.Situation{
					Targets: []rollout.Target{{Strategy: strategy, Groups: groups, Clusters: clusters}}, Now: now,
					Site: func(name string) rollout.Site { return sites[name] },
				})
			}
		})
	}
}
