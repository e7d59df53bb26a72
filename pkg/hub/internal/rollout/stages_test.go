package rollout_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/test/kit"
)

func planSpec(t *testing.T, text string) *workwirev1alpha1.RolloutPlanSpec {
	t.Helper()
	spec := &workwirev1alpha1.RolloutPlanSpec{}
	kit.NoError(t, yaml.UnmarshalStrict([]byte(text), spec))
	return spec
}

// TestPlan decides about clusters a1 and a2 of stage a, b1 and b2 of stage b, and others, with labels stage and zone a or b by
// their names; now is Tuesday, 2026-02-03 04:05:06 UTC.
func TestPlan(t *testing.T) {
	const stages = `stages:
- {name: a, clusterSelector: {matchLabels: {stage: a}}, soak: 10m}
- {name: b, clusterSelector: {matchLabels: {stage: b}}, approval: Required}
`
	const ahead = `stageAhead: 2h
windows: [{schedule: "30 0 * * *", duration: 1h, timeZoneClaim: zone.example}]
`
	for name, c := range map[string]struct {
		plan     string
		strategy clusterv1alpha1.RolloutStrategy
		clusters string // "a1:Succeeded/5m", with how long; "-" before the status: away
		approved string
		starts   string
		stages   string
		hold     string
		later    string // windows that open later
		requeue  time.Duration
	}{
		"the first stage starts": {
			plan: stages, clusters: "a1 a2 b1 c1", starts: "a1 a2",
			stages: "a 0/0/2; b 0/0/1 EarlierStage; other clusters 0/0/1 EarlierStage",
		},
		"nobody overtakes": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Progressing/1m b1 c1", approved: "b",
			stages: "a 1/2/2; b 0/0/1 EarlierStage; other clusters 0/0/1 EarlierStage",
		},
		"it soaks": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Succeeded/1m b1", approved: "b",
			stages: "a 2/2/2 Soaking; b 0/0/1 EarlierStage", hold: "Soaking stage a: soaks until 2026-02-03T04:14:06Z", requeue: 9 * time.Minute,
		},
		"it waits for approval": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Succeeded/10m b1", approved: "a",
			stages: "a 2/2/2 complete; b 0/0/1 WaitsForApproval", hold: "WaitsForApproval stage b: waits for approval",
		},
		"it is approved": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Succeeded/10m b1 c1", approved: "b", starts: "b1",
			stages: "a 2/2/2 complete; b 0/0/1; other clusters 0/0/1 EarlierStage",
		},
		"a stage without clusters needs no approval": {
			plan: stages, clusters: "a1:Succeeded/20m c1", starts: "c1", stages: "a 1/1/1 complete; other clusters 0/0/1",
		},
		"nor does one that has the template": {
			plan: stages, clusters: "a1:Succeeded/20m b1:Succeeded/0s c1", starts: "c1", stages: "a 1/1/1 complete; b 1/1/1 complete; other clusters 0/0/1",
		},
		"who has the template keeps it": {
			plan: stages, clusters: "a1 b1:Succeeded/5m b2", approved: "b", starts: "a1", stages: "a 0/0/1; b 1/1/2 EarlierStage",
		},
		"a failure stops the next stage, with All too": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Failed/1m b1", approved: "b",
			stages: "a 1/2/2; b 0/0/1 EarlierStage",
		},
		"a failure that is tolerated does not": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Failed/1m b1", approved: "b", starts: "b1",
			strategy: progressive("100%", config(0, "", "1")), stages: "a 1/2/2 complete; b 0/0/1",
		},
		"what the stage tolerates is a part of the stage": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Failed/1m a3:Failed/1m b1 b2 b3 b4 b5 b6", approved: "b",
			strategy: progressive("100%", config(0, "", "20%")), stages: "a 1/3/3; b 0/0/6 EarlierStage",
		},
		"the strategy decides in the stage": {
			plan: stages, clusters: "a1:Succeeded/1m a2 a3 a4 b1", strategy: progressive("1", config(0, "", "0")), starts: "a2",
			stages: "a 1/1/4; b 0/0/1 EarlierStage",
		},
		"those that were away are not waited for": {
			plan: stages, clusters: "a1:Succeeded/20m a2:-Progressing/1m a3:- b1", approved: "b", starts: "a3 b1",
			stages: "a 1/2/3 complete; b 0/0/1",
		},
		"but somebody must have succeeded": {
			plan: stages, clusters: "a1:-Progressing/1m b1", approved: "b", stages: "a 0/1/1; b 0/0/1 EarlierStage",
		},
		"skipped clusters are not waited for": {
			plan: stages, clusters: "a1:Skip b1", approved: "b", starts: "b1", stages: "b 0/0/1",
		},
		"a stage of which nothing is rendered proves nothing": {
			plan: stages, clusters: "a1:Unrendered b1", approved: "b", stages: "a 0/0/1; b 0/0/1 EarlierStage",
		},
		"nor is it waited for once somebody has succeeded": {
			plan: stages, clusters: "a1:Succeeded/20m a2:Unrendered b1:Unrendered c1", starts: "c1", stages: "a 1/1/2 complete; b 0/0/1 complete; other clusters 0/0/1",
		},
		"nor if that is in a later stage": {
			plan: stages, clusters: "a1:Unrendered b1:Succeeded/20m b2", approved: "b", starts: "b2", stages: "a 0/0/1 complete; b 1/1/2",
		},
		"a stage whose clusters are away is": {
			plan: stages, clusters: "a1:-Progressing/1m b1:Succeeded/20m b2", approved: "b", stages: "a 0/1/1; b 1/1/2 EarlierStage",
		},
		"frozen": {
			plan:     `freezes: [{from: "2026-02-03T04:00:00Z", to: "2026-02-03T05:05:06Z", reason: Carnival}, {from: "2026-02-03T04:00:00Z", to: "2026-02-03T04:10:00Z"}]`,
			clusters: "c1 c2:Succeeded/1m", stages: "other clusters 1/1/2 Frozen",
			hold: "Frozen frozen until 2026-02-03T05:05:06Z: Carnival", requeue: time.Hour,
		},
		"not yet frozen": {
			plan:     `freezes: [{from: "2026-02-03T04:10:00Z", to: "2026-02-03T05:05:06Z"}]`,
			clusters: "c1", starts: "c1", stages: "other clusters 0/0/1",
		},
		"outside the window": {
			plan: `windows: [{schedule: "30 4 * * 1-5", duration: 2h}]`, clusters: "c1", stages: "other clusters 0/0/1 OutsideWindow",
			hold: "OutsideWindow other clusters: 1 clusters are outside their window, and the next opens 2026-02-03T04:30:00Z", requeue: 24*time.Minute + 54*time.Second,
		},
		"in the window of a zone": {
			plan:     `windows: [{schedule: "0 5 * * *", duration: 1h, timeZone: Europe/Berlin}]`, // 04:00 UTC
			clusters: "c1", starts: "c1", stages: "other clusters 0/0/1",
		},
		"in the windows of some clusters": {
			plan:     `windows: [{schedule: "0 13 * * *", duration: 1h, timeZoneClaim: zone.example}]`,
			clusters: "tokyo lima nowhere mars", starts: "tokyo", stages: "other clusters 0/0/4", requeue: 13*time.Hour + 54*time.Minute + 54*time.Second,
		},
		"the zone of the others": {
			plan:     `windows: [{schedule: "0 4 * * *", duration: 1h, timeZoneClaim: zone.example, timeZone: UTC}]`,
			clusters: "tokyo nowhere mars", starts: "mars nowhere", stages: "other clusters 0/0/3", requeue: 14*time.Hour + 54*time.Minute + 54*time.Second,
		},
		"staged ahead": { // lima opens at 05:30 UTC, tokyo in the evening
			plan: ahead, clusters: "c1 lima tokyo", starts: "lima", later: "lima 05:30-06:30", stages: "other clusters 0/0/3 StagedAhead", requeue: 84*time.Minute + 54*time.Second,
			hold: "StagedAhead other clusters: 1 cluster has the template and applies it when its window opens, at 2026-02-03T05:30:00Z",
		},
		"staged too early": {
			plan: strings.Replace(ahead, "2h", "1h", 1), clusters: "lima", stages: "other clusters 0/0/1 OutsideWindow", requeue: 24*time.Minute + 54*time.Second,
			hold: "OutsideWindow other clusters: 1 clusters are outside their window, and the next opens 2026-02-03T05:30:00Z",
		},
		"not into a freeze": {
			plan: ahead + `freezes: [{from: "2026-02-03T05:00:00Z", to: "2026-02-03T05:10:00Z"}]`, clusters: "lima", stages: "other clusters 0/0/1 OutsideWindow", requeue: 64*time.Minute + 54*time.Second,
			hold: "OutsideWindow other clusters: 1 clusters are outside their window, and the next opens 2026-02-03T05:30:00Z",
		},
		"until a freeze": {
			plan: ahead + `freezes: [{from: "2026-02-03T06:00:00Z", to: "2026-02-03T07:10:00Z"}]`, clusters: "lima", starts: "lima", later: "lima 05:30-06:00",
			stages: "other clusters 0/0/1 StagedAhead", requeue: 84*time.Minute + 54*time.Second,
			hold: "StagedAhead other clusters: 1 cluster has the template and applies it when its window opens, at 2026-02-03T05:30:00Z",
		},
		"a staged one that is away keeps its time, and does not come back to find another": {
			plan: ahead, clusters: "lima:-+", starts: "lima", later: "lima 05:30-06:30", stages: "other clusters 0/0/1 StagedAhead", requeue: 84*time.Minute + 54*time.Second,
			hold: "StagedAhead other clusters: 1 cluster has the template and applies it when its window opens, at 2026-02-03T05:30:00Z",
		},
		"whose window is open goes first": { // that of tokyo
			plan:     `{stageAhead: 2h, windows: [{schedule: "30 0 * * *", duration: 1h, timeZoneClaim: zone.example}, {schedule: "0 13 * * *", duration: 1h, timeZoneClaim: zone.example}]}`,
			clusters: "lima:+ tokyo", starts: "tokyo", strategy: progressive("1", config(0, "", "0")), stages: "other clusters 0/0/2", requeue: 84*time.Minute + 54*time.Second,
		},
		"a failure holds the staged ones": {
			plan: ahead, clusters: "c1:Failed/1m lima:+", stages: "other clusters 0/1/2", requeue: 84*time.Minute + 54*time.Second,
		},
		"no zone at all": {
			plan: `windows: [{schedule: "0 4 * * *", duration: 1h, timeZoneClaim: zone.example}]`, clusters: "nowhere", stages: "other clusters 0/0/1 OutsideWindow",
			hold: "OutsideWindow other clusters: the windows of 1 clusters do not open: no cluster claim names their time zone, or the schedule no time",
		},
		"who is away would receive it outside the window": {
			plan: `windows: [{schedule: "0 4 * * *", duration: 1h}]`, clusters: "c1 c2:-", starts: "c1", stages: "other clusters 0/0/2",
		},
		"one zone after the other": {
			plan: `stages: [{name: all, apart: zone}]`, clusters: "a1 a2 b1 b2 c1", starts: "c1", stages: "all 0/0/5", // c1 has no zone
		},
		"the zone in progress": {
			plan: `stages: [{name: all, apart: zone}]`, clusters: "a1 b1:Progressing/1m b2", starts: "b2", stages: "all 0/1/3",
		},
		"a failed zone is in progress": {
			plan: `stages: [{name: all, apart: zone}]`, clusters: "a1 b1:Failed/1m", strategy: progressive("100%", config(0, "10m", "1")), stages: "all 0/1/2", requeue: 9 * time.Minute,
		},
		"until it has timed out": {
			plan: `stages: [{name: all, apart: zone}]`, clusters: "a1 b1:Failed/11m", strategy: progressive("100%", config(0, "10m", "1")), starts: "a1", stages: "all 0/1/2",
		},
		"two zones in progress": {
			plan: `stages: [{name: all, apart: zone}]`, clusters: "a1:Progressing/1m a2 b1:Progressing/1m b2", stages: "all 0/2/4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := rollout.ParsePlan(planSpec(t, c.plan))
			kit.NoError(t, err)
			strategy, err := rollout.Parse(&c.strategy)
			kit.NoError(t, err)
			target := rollout.Target{Strategy: strategy, Clusters: map[string]rollout.Cluster{}, Groups: []rollout.Group{{}}}
			for _, text := range strings.Fields(c.clusters) {
				name, state, _ := strings.Cut(text, ":")
				target.Groups[0].Clusters = append(target.Groups[0].Clusters, name)
				target.Clusters[name] = clusterOf(t, state)
			}
			got := plan.Decide(rollout.Situation{
				Targets: []rollout.Target{target}, Now: now, Approved: func(stage string) bool { return strings.Contains(c.approved, stage) },
				Site: func(cluster string) rollout.Site {
					labels := map[string]string{"stage": cluster[:1], "zone": cluster[:1]}
					if cluster[0] == 'c' {
						delete(labels, "zone")
					}
					return rollout.Site{Labels: labels, Claim: func(name string) string {
						if name == clusterv1.ClaimApplyAt && cluster != "tokyo" {
							return clusterv1.ClaimApplyAtObeyed
						}
						return map[string]string{"zone.example tokyo": "Asia/Tokyo", "zone.example lima": "America/Lima", "zone.example mars": "Mars/Olympus"}[name+" "+cluster]
					}}
				},
			})
			d := got.Decisions[0]
			if starts := strings.Join(d.Start, " "); starts != c.starts {
				t.Errorf("%q start, want %q", starts, c.starts)
			}
			var later []string
			for _, name := range d.Start {
				if w, ok := got.Later[name]; ok {
					later = append(later, name+w.Start.Format(" 15:04")+w.End.Format("-15:04"))
				}
			}
			if text := strings.Join(later, " "); text != c.later {
				t.Errorf("later %q, want %q", text, c.later)
			}
			texts := make([]string, 0, len(got.Stages))
			for _, s := range got.Stages {
				text := fmt.Sprintf("%s %d/%d/%d", s.Name, s.Succeeded, s.Current, s.Clusters)
				if s.Complete {
					text += " complete"
				}
				texts = append(texts, strings.TrimSpace(text+" "+s.Hold.Reason))
			}
			if text := strings.Join(texts, "; "); text != c.stages {
				t.Errorf("stages %q, want %q", text, c.stages)
			}
			hold := ""
			if got.Hold.Reason != "" {
				hold = got.Hold.Reason + " " + got.Hold.String()
			}
			if hold != c.hold {
				t.Errorf("hold %q, want %q", hold, c.hold)
			}
			var requeue time.Duration
			if !d.RequeueAt.IsZero() {
				requeue = d.RequeueAt.Sub(now)
			}
			if requeue != c.requeue {
				t.Errorf("decided again after %s, want %s", requeue, c.requeue)
			}
		})
	}
}

// clusterOf returns a cluster from a text such as "-Progressing/5m", which is away since an hour, "+", which is staged, or "Unrendered".
func clusterOf(t *testing.T, text string) (c rollout.Cluster) {
	t.Helper()
	text, c.Away = strings.CutPrefix(text, "-")
	text, c.Staged = strings.CutPrefix(text, "+")
	if c.Away {
		c.PresenceSince = now.Add(-time.Hour)
	}
	if text == "Unrendered" {
		return rollout.Cluster{Status: rollout.Skip, Unrendered: true}
	}
	status, ago, _ := strings.Cut(text, "/")
	for s := rollout.ToApply; s <= rollout.Skip; s++ {
		if s.String() == status {
			c.Status = s
		}
	}
	if ago != "" {
		d, err := time.ParseDuration(ago)
		kit.NoError(t, err)
		c.Since = now.Add(-d)
	}
	return c
}

// TestPlanOfSeveralTargets: a stage has the clusters of all placements of a set.
func TestPlanOfSeveralTargets(t *testing.T) {
	plan, err := rollout.ParsePlan(planSpec(t, `stages: [{name: a, clusterSelector: {matchLabels: {stage: a}}}]`))
	kit.NoError(t, err)
	targets := []rollout.Target{
		{Groups: []rollout.Group{{Clusters: []string{"b1", "a1"}}}, Clusters: map[string]rollout.Cluster{"a1": {Status: rollout.Succeeded}}},
		{Groups: []rollout.Group{{Clusters: []string{"b2", "a2"}}}, Clusters: map[string]rollout.Cluster{"a2": {Status: rollout.Progressing}}},
	}
	s := rollout.Situation{Targets: targets, Now: now, Site: func(cluster string) rollout.Site {
		return rollout.Site{Labels: map[string]string{"stage": cluster[:1]}}
	}}
	got := plan.Decide(s)
	if len(got.Decisions[0].Start)+len(got.Decisions[1].Start) > 0 || len(got.Decisions[0].Waiting) != 1 {
		t.Errorf("%+v", got)
	}
	targets[1].Clusters["a2"] = rollout.Cluster{Status: rollout.Succeeded}
	got = plan.Decide(s)
	if len(got.Decisions[0].Start) != 1 || len(got.Decisions[1].Start) != 1 {
		t.Errorf("%+v", got)
	}
}

// TestProvenAfterSoak: a template is proven when the last stage has soaked.
func TestProvenAfterSoak(t *testing.T) {
	plan, err := rollout.ParsePlan(planSpec(t, `stages: [{name: all, soak: 10m}]`))
	kit.NoError(t, err)
	for name, c := range map[string]struct {
		plan   *rollout.Plan
		ago    time.Duration
		proven bool
	}{
		"it soaks":      {plan: plan, ago: time.Minute},
		"it has soaked": {plan: plan, ago: 10 * time.Minute, proven: true},
		"nobody knows":  {plan: rollout.Closed("no plan"), ago: 10 * time.Minute},
	} {
		got := c.plan.Decide(rollout.Situation{
			Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a"}}}, Clusters: map[string]rollout.Cluster{"a": {Status: rollout.Succeeded, Since: now.Add(-c.ago)}}}},
			Site:    func(string) rollout.Site { return rollout.Site{} }, Now: now,
		}).Decisions[0]
		if got.Proven != c.proven || !got.Done {
			t.Errorf("%s: proven %t, done %t", name, got.Proven, got.Done)
		}
	}
}

// TestSoakOfAClockAhead: a cluster soaks from the hub's time if its own clock is ahead.
func TestSoakOfAClockAhead(t *testing.T) {
	plan, err := rollout.ParsePlan(planSpec(t, `stages: [{name: a, clusterSelector: {matchLabels: {stage: a}}, soak: 30m}]`))
	kit.NoError(t, err)
	work := workFrom(t, "Applied=True@3:-3s Available=True@3:-3s Ready=True@3:0s Delivered=True@3:0s")
	got := plan.Decide(rollout.Situation{
		Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a", "b"}}}, Clusters: map[string]rollout.Cluster{"a": rollout.StatusOf(work, true, now)}}},
		Site:    func(cluster string) rollout.Site { return rollout.Site{Labels: map[string]string{"stage": cluster}} }, Now: now,
	})
	if got.Hold.Reason != workv1alpha1.ReasonSoaking || !got.Hold.Until.Equal(now.Add(30*time.Minute)) || len(got.Decisions[0].Start) > 0 {
		t.Errorf("%+v", got)
	}
}

// TestOpenUntil: what starts must have started before a freeze, and the window's end.
func TestOpenUntil(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`stages: []`: 0,
		`windows: [{schedule: "0 4 * * *", duration: 1h}]`:                                                                                          54*time.Minute + 54*time.Second,
		`windows: [{schedule: "0 4 * * *", duration: 1h}, {schedule: "0 3 * * *", duration: 4h}]`:                                                   2*time.Hour + 54*time.Minute + 54*time.Second,
		`{windows: [{schedule: "0 4 * * *", duration: 1h}], freezes: [{from: "2026-02-03T04:06:06Z", to: "2026-02-03T05:00:00Z", reason: freeze}]}`: time.Minute,
	} {
		plan, err := rollout.ParsePlan(planSpec(t, text))
		kit.NoError(t, err)
		got := plan.Decide(rollout.Situation{
			Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a"}}}}}, Site: func(string) rollout.Site { return rollout.Site{} }, Now: now,
		})
		var until time.Duration
		if !got.OpenUntil.IsZero() {
			until = got.OpenUntil.Sub(now)
		}
		if until != want || len(got.Decisions[0].Start) != 1 {
			t.Errorf("%s: open for %s, want %s; %v start", text, until, want, got.Decisions[0].Start)
		}
	}
}

// TestWindowAcrossTimeChange: in the night in which an hour comes twice, a window is as long as it says. In the one in which
// an hour is left out, a window that begins in it does not open, and others of that day do.
func TestWindowAcrossTimeChange(t *testing.T) {
	for _, c := range []struct {
		schedule, utc string
		open          bool
		zone          string // empty: Europe/Berlin
	}{ // in Berlin, 2026-10-24 23:00 UTC is 01:00 in summer, and 2026-03-29 01:00 UTC is 03:00
		{"0 1 * * *", "2026-10-24T22:59:59Z", false, ""},
		{"0 1 * * *", "2026-10-24T23:00:00Z", true, ""},
		{"0 1 * * *", "2026-10-25T00:59:59Z", true, ""},
		{"0 1 * * *", "2026-10-25T01:00:00Z", false, ""},
		{"30 2 * * *", "2026-03-28T01:30:00Z", true, ""},
		{"30 2 * * *", "2026-03-29T00:59:59Z", false, ""},
		{"30 2 * * *", "2026-03-29T01:30:00Z", false, ""},
		{"30 2 * * *", "2026-03-30T00:30:00Z", true, ""},
		{"30 2 * * *", "2026-10-25T03:29:59Z", true, ""}, // the second of both
		{"30 2 * * *", "2026-10-25T03:30:00Z", false, ""},
		{"30 23 * * *", "2026-03-28T22:30:00Z", true, "Asia/Beirut"}, // at 22:00 UTC, 00:00 becomes 01:00
		{"0 1 * * 0", "2026-03-28T21:59:59Z", false, "Asia/Beirut"},
		{"0 1 * * 0", "2026-03-28T22:00:00Z", true, "Asia/Beirut"},
		{"0 2 * * 0", "2026-03-28T22:59:59Z", false, "Asia/Beirut"},
		{"0 2 * * 0", "2026-03-29T00:00:00Z", true, "Asia/Beirut"},
		{"0 2 * * 0", "2026-03-29T01:00:00Z", false, "Asia/Beirut"},
		{"0 0 * * 0", "2026-03-28T22:30:00Z", false, "Asia/Beirut"},
		{"0 0 * * 6", "2026-04-04T22:30:00Z", false, "Asia/Beirut"},
		{"0 0 * * 0", "2026-04-04T21:30:00Z", true, "Asia/Beirut"},
		{"0 2 * * 0", "2018-11-04T04:30:00Z", true, "America/Sao_Paulo"},  // west of UTC
		{"0 2 * * *", "2018-02-18T04:30:00Z", false, "America/Sao_Paulo"}, // 23:00 comes twice
		{"0 2 * * *", "2018-02-18T05:30:00Z", true, "America/Sao_Paulo"},
	} {
		plan, err := rollout.ParsePlan(planSpec(t, fmt.Sprintf(`windows: [{schedule: %q, duration: 2h, timeZone: %s}]`, c.schedule, cmp.Or(c.zone, "Europe/Berlin"))))
		kit.NoError(t, err)
		at, err := time.Parse(time.RFC3339, c.utc)
		kit.NoError(t, err)
		got := plan.Decide(rollout.Situation{
			Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a"}}}}}, Site: func(string) rollout.Site { return rollout.Site{} }, Now: at,
		})
		if open := len(got.Decisions[0].Start) == 1; open != c.open {
			t.Errorf("%s, %s: open %t", c.schedule, c.utc, open)
		}
	}
}

// TestWindowOfASkippedMidnight: one that has begun days before the clocks change lasts, and the next is named.
func TestWindowOfASkippedMidnight(t *testing.T) {
	plan, err := rollout.ParsePlan(planSpec(t, `windows: [{schedule: "0 20 * * 5", duration: 60h, timeZone: Africa/Cairo}]`))
	kit.NoError(t, err)
	for at, want := range map[string]string{ // on Friday 2026-04-24, 00:00 becomes 01:00
		"2026-04-23T21:00:00Z": "false 2026-04-24T17:00:00Z",
		"2026-04-24T17:00:00Z": "true 2026-04-27T05:00:00Z",
		"2026-04-25T07:00:00Z": "true 2026-04-27T05:00:00Z",
		"2026-04-27T05:00:00Z": "false 2026-05-01T17:00:00Z",
	} {
		now, err := time.Parse(time.RFC3339, at)
		kit.NoError(t, err)
		got := plan.Decide(rollout.Situation{
			Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a"}}}}}, Site: func(string) rollout.Site { return rollout.Site{} }, Now: now,
		})
		until := got.OpenUntil
		if until.IsZero() {
			until = got.Hold.Until
		}
		if text := fmt.Sprintf("%t %s", len(got.Decisions[0].Start) == 1, until.Format(time.RFC3339)); text != want {
			t.Errorf("at %s: %s, want %s", at, text, want)
		}
	}
}

// TestClosedPlan: nothing starts, and what has the template keeps it.
func TestClosedPlan(t *testing.T) {
	got := rollout.Closed("no plan").Decide(rollout.Situation{
		Targets: []rollout.Target{{Groups: []rollout.Group{{Clusters: []string{"a", "b"}}}, Clusters: map[string]rollout.Cluster{"a": {Status: rollout.Succeeded}}}},
		Site:    func(string) rollout.Site { return rollout.Site{} }, Now: now,
	})
	if d := got.Decisions[0]; len(d.Start) > 0 || len(d.Waiting) != 1 || got.Hold.Reason != workv1alpha1.ReasonInvalidPlan || got.Hold.String() != "no plan" {
		t.Errorf("%+v", got)
	}
}

func TestParsePlan(t *testing.T) {
	for text, want := range map[string]string{
		`stages: [{name: preview}]`:                                             `stages[0] preview: name is "preview": must not be empty, and not preview`,
		`stages: [{name: a}, {name: a}]`:                                        `stages[1] a: another stage has the same name`,
		`stages: [{name: a, soak: -1s}]`:                                        `stages[0] a: soak is -1s: must not be negative`,
		`stages: [{name: a, approval: Maybe}]`:                                  `stages[0] a: approval is "Maybe": must be Required or absent`,
		`windows: [{schedule: "0 1 * *", duration: 1h}]`:                        `windows[0]: schedule is "0 1 * *": expected exactly 5 fields, found 4: [0 1 * *]`,
		`windows: [{schedule: "@every 1h", duration: 1h}]`:                      `windows[0]: schedule is "@every 1h": must name times, such as 0 22 * * 1-5`,
		`windows: [{schedule: "TZ=UTC", duration: 1h}]`:                         `windows[0]: schedule is "TZ=UTC": the time zone is a field of its own`,
		`windows: [{schedule: "@daily", duration: 0s}]`:                         `windows[0]: duration is 0s: must be more than 0 and at most 168h0m0s`,
		`windows: [{schedule: "@daily", duration: 169h}]`:                       `windows[0]: duration is 169h0m0s: must be more than 0 and at most 168h0m0s`,
		`windows: [{schedule: "@daily", duration: 1h, timeZone: Local}]`:        `windows[0]: timeZone is "Local": must be the name of a time zone, such as Europe/Berlin`,
		`freezes: [{from: "2026-02-03T04:00:00Z", to: "2026-02-03T04:00:00Z"}]`: `freezes[0]: to must be after from`,
	} {
		if _, err := rollout.ParsePlan(planSpec(t, text)); err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	_, err := rollout.ParsePlan(&workwirev1alpha1.RolloutPlanSpec{Stages: []workwirev1alpha1.RolloutStage{{
		Name: "a", ClusterSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}},
	}}})
	if err == nil || !strings.Contains(err.Error(), "stages[0] a") {
		t.Errorf("a wrong selector: %v", err)
	}
}
