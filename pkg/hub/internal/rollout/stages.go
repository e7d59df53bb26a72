package rollout

import (
	"fmt"
	"maps"
	"slices"
	"time"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// Target is the rollout to the clusters of one placement.
type Target struct {
	Strategy Strategy
	Groups   []Group
	// Clusters are as for [Strategy.Decide].
	Clusters map[string]Cluster
}

// Site is what a plan goes by of a cluster.
type Site struct {
	Labels map[string]string
	// Claim returns the value of a cluster claim, empty if the cluster has none; nil: it has none at all.
	Claim func(name string) string
}

// Situation is everything but the plan that a decision by stages depends on.
type Situation struct {
	// Targets are the placements of the set. A stage has the clusters of all of them.
	Targets []Target
	// Site returns the site of a cluster.
	Site func(cluster string) Site
	// Approved reports whether a stage is approved for the revision that is rolled out.
	Approved func(stage string) bool
	Now      time.Time
}

// Staged is the outcome of a plan at one moment.
type Staged struct {
	// Decisions are those about the targets, in their order.
	Decisions []Decision
	// Stages are those of the plan that have clusters, in their order.
	Stages []StageStatus
	// Hold is what the rollout waits for while no cluster is in progress; zero if some is, or the rollout is complete.
	Hold Hold
	// Later are the windows of those clusters of Start that receive the template before their window opens.
	Later map[string]Window
	// OpenUntil is when clusters of Start must not start any more; zero means never.
	OpenUntil time.Time
}

// Window is a time in which clusters start.
type Window struct{ Start, End time.Time }

// StageStatus is the state of a stage.
type StageStatus struct {
	Name string
	// Clusters is the number of its clusters without those that are skipped, but with those that are Unrendered, Current how many of
	// them have the template, Succeeded how many succeeded with it, and Starting how many receive it now.
	Clusters, Unrendered, Current, Succeeded, Starting int
	// Has is how many of Clusters have the template, also those that apply it later.
	Has int
	// Staged is how many of Starting apply it later, when their window opens.
	Staged int
	// Approval reports whether the stage needs an approval.
	Approval bool
	// Complete reports whether the next stage may start, which does not wait for Unrendered clusters.
	Complete bool
	// Stopped reports whether more of its clusters have failed than the strategies tolerate.
	Stopped bool
	// Hold is what the stage waits for; zero if it is complete, or clusters are in progress.
	Hold Hold
}

// Hold is what a rollout waits for.
type Hold struct {
	// Reason is one of those of the condition Progressing of a set.
	Reason string
	// Stage is the name of the stage that is held.
	Stage string
	// Until is when it ends by itself; zero if it does not, or nobody knows.
	Until time.Time
	// Message says it for people.
	Message string
}

// String returns the message with the name of the stage.
func (h Hold) String() string {
	if h.Reason == workv1alpha1.ReasonInvalidPlan || h.Reason == workv1alpha1.ReasonFrozen {
		return h.Message
	}
	return nameOf(h.Stage) + ": " + h.Message
}

// Decide returns which clusters receive the current template now. The stages follow one another, and in each of them the
// strategy of a placement decides as if the placement had selected the clusters of the stage: percentages are of these.
// It takes O(n log n) for n clusters and does not modify its arguments.
func (p *Plan) Decide(s Situation) Staged {
	g := gate{Plan: p, Situation: s, openings: newOpenings(p.windows, s.Now), deciders: make([]decider, len(s.Targets)), later: make(map[string]Window)}
	g.staged.Later = make(map[string]Window)
	for i, t := range s.Targets {
		g.deciders[i] = decider{Strategy: t.Strategy, now: s.Now}
	}
	for i, parts := range g.split() {
		g.decideStage(p.stages[i], parts)
	}
	for i := range g.deciders {
		d := &g.deciders[i]
		decision := d.result()
		decision.Proven = decision.Proven && !g.soaking && g.closed == "" // of a closed plan nobody knows soak times and tests
		decision.RequeueAt = Earlier(decision.RequeueAt, g.requeueAt)
		g.staged.Decisions = append(g.staged.Decisions, decision)
	}
	g.staged.OpenUntil = Earlier(g.staged.OpenUntil, p.nextFreeze(s.Now))
	for _, stage := range g.staged.Stages {
		if !stage.Complete {
			g.staged.Hold = stage.Hold
			break
		}
	}
	return g.staged
}

// gate is the working state of one call of Plan.Decide.
type gate struct {
	*Plan
	Situation
	openings  *openings
	deciders  []decider // by target: the sum of the stages so far
	earlier   string    // the first stage that is not complete; empty: all so far are
	proven    bool      // some cluster of the stages so far succeeded
	succeeded bool      // some cluster of any stage did
	soaking   bool
	later     map[string]Window // of clusters that may have the template before their window
	changeAt  time.Time         // when windows change for clusters of the stage
	requeueAt time.Time
	staged    Staged
}

// part is the clusters of a stage that are of one target.
type part struct {
	groups   []Group
	names    []string
	clusters map[string]Cluster
}

// split returns the parts of each stage, by target. Each has all groups of the target, some of them without clusters.
func (g *gate) split() [][]part {
	stages := make([][]part, len(g.stages))
	for i := range stages {
		stages[i] = make([]part, len(g.Targets))
	}
	known := make(map[string]int)
	for i, target := range g.Targets {
		groups := ordered(target.Groups)
		for at := range stages {
			empty := make([]Group, len(groups))
			for k, group := range groups {
				empty[k] = Group{Index: group.Index, Name: group.Name}
			}
			stages[at][i] = part{groups: empty, clusters: make(map[string]Cluster)}
		}
		for k, group := range groups {
			for _, name := range group.Clusters {
				at, ok := known[name]
				if !ok {
					at = g.StageOf(g.Site(name).Labels)
					known[name] = at
				}
				p := &stages[at][i]
				p.groups[k].Clusters = append(p.groups[k].Clusters, name)
				p.names = append(p.names, name)
				p.clusters[name] = target.Clusters[name]
				g.succeeded = g.succeeded || target.Clusters[name].Status == Succeeded
			}
		}
	}
	return stages
}

// soaks returns until when a cluster of the stage that has succeeded soaks; zero if it does not.
func (s stage) soaks(c Cluster) time.Time {
	if c.Status != Succeeded || s.soak <= 0 || c.Since.IsZero() {
		return time.Time{}
	}
	return c.Since.Add(s.soak)
}

// decideStage decides about the clusters of a stage, and adds the result to that of the stages before.
func (g *gate) decideStage(s stage, parts []part) {
	entry := g.entry(s)
	g.changeAt = time.Time{}
	windows := g.holdOutside(parts, entry, s.apart != "")
	deciders := g.run(parts)
	if s.apart != "" && starts(deciders) {
		deciders = g.keepApart(s, parts, deciders)
	}
	if stopped(deciders) && starts(deciders) { // the strategy All starts whatever fails
		holdAll(parts, func(string) bool { return true })
		deciders = g.run(parts)
	}
	status := StageStatus{Name: s.name, Approval: s.approval}
	var sum tally
	var opens, soaked time.Time // the first window of those that have the template before, and the last cluster of the stage
	for i, p := range parts {
		for _, c := range p.clusters {
			status.count(c)
			soaked = later(soaked, s.soaks(c))
		}
		t := g.tally(i, p, p.names)
		sum.toApply, sum.held, sum.awayHeld = append(sum.toApply, t.toApply...), sum.held+t.held, sum.awayHeld+t.awayHeld
		sum.inProgress += t.inProgress
		status.Starting += len(deciders[i].Start)
		opens = Earlier(opens, g.stage(deciders[i].Start, &status))
		g.proven = g.proven || deciders[i].proven
		g.deciders[i].add(&deciders[i])
	}
	if status.Clusters == 0 {
		return
	}
	waiting, soaking := len(sum.toApply)+sum.held, soaked.After(g.Now)
	proven := g.proven || g.succeeded && status.Unrendered == status.Clusters // a stage without a template cannot prove it
	status.Stopped = stopped(deciders)
	status.Complete = waiting == 0 && sum.inProgress == 0 && proven && !soaking && !status.Stopped
	switch {
	case status.Complete, status.Starting > status.Staged, sum.inProgress > 0:
	case status.Staged > 0:
		status.Hold = stagedHold(status.Staged, opens)
	case entry.Reason != "" && waiting > 0:
		status.Hold = entry
	case status.Stopped:
	case waiting > 0 && windows.Reason != "":
		status.Hold = windows
	case waiting == 0 && soaking:
		status.Hold = Hold{Reason: workv1alpha1.ReasonSoaking, Until: soaked, Message: "soaks until " + timeText(soaked)}
	}
	if status.Hold.Reason != "" {
		status.Hold.Stage = s.name
	}
	if waiting+sum.awayHeld > 0 {
		g.requeueAt = Earlier(Earlier(g.requeueAt, entry.Until), g.changeAt)
	}
	if soaking {
		g.soaking = true
		if waiting == 0 && sum.inProgress == 0 {
			g.requeueAt = Earlier(g.requeueAt, soaked)
		}
	}
	if !status.Complete && g.earlier == "" {
		g.earlier = s.name
	}
	g.staged.Stages = append(g.staged.Stages, status)
}

// stage has those of the clusters that start before their window wait for it, counts them, and returns when the first
// of these windows opens.
func (g *gate) stage(starting []string, status *StageStatus) (opens time.Time) {
	for _, name := range starting {
		w, later := g.later[name]
		if !later {
			continue
		}
		status.Staged, opens = status.Staged+1, Earlier(opens, w.Start)
		g.staged.Later[name] = w
		g.staged.OpenUntil = Earlier(g.staged.OpenUntil, w.End)
	}
	return opens
}

// stagedHold says that so many clusters wait for their windows.
func stagedHold(clusters int, opens time.Time) Hold {
	message := fmt.Sprintf("%d clusters have the template and apply it when their window opens, the first %s", clusters, timeText(opens))
	if clusters == 1 {
		message = "1 cluster has the template and applies it when its window opens, at " + timeText(opens)
	}
	return Hold{Reason: workv1alpha1.ReasonStagedAhead, Until: opens, Message: message}
}

// count adds a cluster.
func (s *StageStatus) count(c Cluster) {
	if c.Status == Skip && !c.Unrendered {
		return
	}
	s.Clusters++
	if c.Unrendered {
		s.Unrendered++
		return
	}
	if c.Status != ToApply {
		s.Current++
	}
	if c.Status != ToApply || c.Staged {
		s.Has++
	}
	if c.Status == Succeeded {
		s.Succeeded++
	}
}

// entry returns what holds all clusters of a stage.
func (g *gate) entry(s stage) Hold {
	switch frozen := g.frozen(g.Now); {
	case g.closed != "":
		return Hold{Reason: workv1alpha1.ReasonInvalidPlan, Message: g.closed}
	case frozen != nil:
		message := "frozen until " + timeText(frozen.to)
		if frozen.reason != "" {
			message += ": " + frozen.reason
		}
		return Hold{Reason: workv1alpha1.ReasonFrozen, Until: frozen.to, Message: message}
	case g.earlier != "":
		return Hold{Reason: workv1alpha1.ReasonEarlierStage, Message: "waits for " + nameOf(g.earlier)}
	case s.approval && !g.Approved(s.name):
		return Hold{Reason: workv1alpha1.ReasonWaitsForApproval, Message: "waits for approval"}
	}
	return Hold{}
}

// holdOutside holds all clusters if the stage does not start, and else those of which no window is open. While there are
// windows, or stages are kept apart, it holds those that are away too: they would receive the template whenever they
// return. It returns what holds clusters outside their windows.
func (g *gate) holdOutside(parts []part, entry Hold, apart bool) (windows Hold) {
	outside := 0
	holdAll(parts, func(name string) bool {
		if entry.Reason != "" {
			return true
		}
		state := g.openings.of(g.Site(name))
		if state.open {
			g.staged.OpenUntil = Earlier(g.staged.OpenUntil, state.change)
			return false
		}
		w, ok, again := g.staging(state, g.Site(name), g.Now)
		g.changeAt = Earlier(g.changeAt, again)
		if ok {
			g.later[name] = w
			return false
		}
		outside++
		windows.Until = Earlier(windows.Until, state.change)
		return true
	})
	if apart || len(g.windows) > 0 {
		for _, p := range parts {
			for name, c := range p.clusters {
				_, c.Later = g.later[name]
				c.Held = c.Held || c.Status == ToApply && c.absent()
				p.clusters[name] = c
			}
		}
	}
	if outside > 0 {
		windows.Reason, windows.Message = workv1alpha1.ReasonOutsideWindow, fmt.Sprintf("%d clusters are outside their window, and the next opens %s", outside, timeText(windows.Until))
		if windows.Until.IsZero() {
			windows.Message = fmt.Sprintf("the windows of %d clusters do not open: no cluster claim names their time zone, or the schedule no time", outside)
		}
	}
	return windows
}

// holdAll holds the clusters without the template for which held returns true.
func holdAll(parts []part, held func(name string) bool) {
	for _, p := range parts {
		for name, c := range p.clusters {
			if c.Status == ToApply && held(name) {
				c.Held = true
				p.clusters[name] = c
			}
		}
	}
}

// run has the strategies decide about a stage.
func (g *gate) run(parts []part) []decider {
	deciders := make([]decider, len(parts))
	for i, p := range parts {
		deciders[i] = g.Targets[i].Strategy.decide(p.groups, p.clusters, g.Now)
	}
	return deciders
}

func starts(deciders []decider) bool {
	return slices.ContainsFunc(deciders, func(d decider) bool { return len(d.Start) > 0 })
}

func stopped(deciders []decider) bool {
	return slices.ContainsFunc(deciders, func(d decider) bool { return len(d.Exceeded) > 0 })
}

// tally returns the tally of clusters of a part. Of those that went away with the template it excuses as many as have
// succeeded, as in a group of ProgressivePerGroup.
func (g *gate) tally(i int, p part, names []string) tally {
	d := decider{Strategy: g.Targets[i].Strategy, clusters: p.clusters, now: g.Now}
	t := d.count(names, func(t tally) int { return t.succeeded })
	g.requeueAt = Earlier(g.requeueAt, Earlier(d.timeOutAt, d.minSuccessAt))
	return t
}

// maxTurns is how many failure domains are tried in the order of their names for one that the strategies let start.
const maxTurns = 16

// keepApart has the strategies decide with all failure domains held but one: the one in progress or, if none is, the first
// of those that may start. A domain is in progress while a cluster of it holds a slot, as in the sequence of Progressive.
func (g *gate) keepApart(s stage, parts []part, together []decider) []decider {
	domain := func(name string) string {
		value, ok := g.Site(name).Labels[s.apart]
		if !ok {
			return ""
		}
		return "=" + value
	}
	var may, later, busy []string
	for i, p := range parts {
		members := make(map[string][]string)
		for _, name := range p.names {
			members[domain(name)] = append(members[domain(name)], name)
			switch c := p.clusters[name]; {
			case c.Status != ToApply || c.Held:
			case c.Later:
				later = append(later, domain(name))
			default:
				may = append(may, domain(name))
			}
		}
		for of, names := range members {
			if t := g.tally(i, p, names); t.inProgress+len(t.failed) > 0 {
				busy = append(busy, of)
			}
		}
	}
	only := func(turn string) []decider {
		held := make([]part, 0, len(parts))
		for _, p := range parts {
			p.clusters = maps.Clone(p.clusters)
			held = append(held, p)
		}
		holdAll(held, func(name string) bool { return domain(name) != turn })
		return g.run(held)
	}
	slices.Sort(busy)
	switch busy = slices.Compact(busy); len(busy) {
	case 0:
	case 1:
		return only(busy[0])
	default: // clusters came back, or their labels have changed
		return only("none of them")
	}
	slices.Sort(may)
	slices.Sort(later)
	for _, turn := range first(append(slices.Compact(may), slices.Compact(later)...), maxTurns) {
		if deciders := only(turn); starts(deciders) {
			return deciders
		}
	}
	at := slices.IndexFunc(together, func(d decider) bool { return len(d.Start) > 0 })
	return only(domain(together[at].Start[0]))
}

// add adds the result for another stage.
func (d *decider) add(stage *decider) {
	d.Start, d.Rollout, d.Waiting = append(d.Start, stage.Start...), append(d.Rollout, stage.Rollout...), append(d.Waiting, stage.Waiting...)
	d.Failed, d.TimedOut, d.Soaking = append(d.Failed, stage.Failed...), append(d.TimedOut, stage.TimedOut...), append(d.Soaking, stage.Soaking...)
	if len(d.Exceeded) == 0 {
		d.Exceeded = stage.Exceeded
	}
	d.Missing = stage.Missing
	d.proven = d.proven || stage.proven
	d.total, d.finished, d.absent = d.total+stage.total, d.finished+stage.finished, d.absent+stage.absent
	d.Unrendered += stage.Unrendered
	d.timeOutAt, d.minSuccessAt = Earlier(d.timeOutAt, stage.timeOutAt), Earlier(d.minSuccessAt, stage.minSuccessAt)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func timeText(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// nameOf returns "stage canary", or what the clusters are called that no stage selects.
func nameOf(stage string) string {
	if stage == OtherClusters {
		return stage
	}
	return "stage " + stage
}
