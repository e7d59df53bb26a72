package rollout

import (
	"cmp"
	"slices"
	"time"
)

// tally summarizes the clusters of a group, or of the sequence of Progressive. The names are in the
// order in which they were counted.
type tally struct {
	toApply     []string // present, without the template; those whose window is open come first
	later       []string // of toApply until all are counted: their window is not open yet
	awayToApply []string // away, without the template
	held        int      // present, without the template, and held
	awayHeld    int      // away, without the template, and held
	// inProgress counts the clusters that have the template and hold a slot: progressing, missing
	// and not excused, or within minSuccessTime.
	inProgress int
	excused    int // have the template and were away before they received it
	failed     []string
	timedOut   []string
	succeeded  int
	skipped    int
	unrendered int // of skipped
}

func (t tally) failures() []string {
	names := slices.Concat(t.failed, t.timedOut)
	slices.Sort(names)
	return names
}

// addToApply adds a cluster without the template.
func (t *tally) addToApply(name string, c Cluster) {
	switch {
	case c.Held && c.absent():
		t.awayHeld++
	case c.Held:
		t.held++
	case c.absent():
		t.awayToApply = append(t.awayToApply, name)
	case c.Later:
		t.later = append(t.later, name)
	default:
		t.toApply = append(t.toApply, name)
	}
}

// skip adds a cluster that is skipped.
func (t *tally) skip(c Cluster) {
	t.skipped++
	if c.Unrendered {
		t.unrendered++
	}
}

// count returns the tally of the clusters and adds failed and timed-out clusters to the decision.
// excusable returns how many missing clusters are excused, given the tally without them.
func (d *decider) count(clusters []string, excusable func(tally) int) tally {
	var t tally
	var missing []string
	timedOut := map[string]bool{}
	progressing := func(name string, since time.Time) {
		if d.expired(since) {
			timedOut[name] = true
		} else {
			t.inProgress++
		}
	}
	for _, name := range clusters {
		cluster := d.clusters[name]
		switch cluster.Status {
		case ToApply:
			t.addToApply(name, cluster)
		case Progressing:
			switch {
			case cluster.Away && !cluster.PresenceSince.After(cluster.Since):
				t.excused++
			case cluster.Away:
				missing = append(missing, name)
			default:
				progressing(name, deadlineStart(cluster))
			}
		case Succeeded:
			t.succeeded++
			if d.soaks(name, cluster.Since) {
				t.inProgress++
			}
		case Failed:
			if d.expired(cluster.Since) {
				timedOut[name] = true
			} else {
				t.failed = append(t.failed, name)
			}
		case TimeOut:
			timedOut[name] = true
		case Skip:
			t.skip(cluster)
		}
	}
	t.toApply = append(t.toApply, t.later...)
	d.sortByAbsence(missing)
	for _, name := range missing[min(len(missing), excusable(t)):] {
		progressing(name, d.clusters[name].Since)
	}
	for _, name := range clusters {
		if timedOut[name] {
			t.timedOut = append(t.timedOut, name)
		}
	}
	d.Failed = append(d.Failed, t.failed...)
	d.TimedOut = append(d.TimedOut, t.timedOut...)
	d.Unrendered += t.unrendered
	d.finished += t.succeeded + t.skipped - t.unrendered
	d.absent += t.excused + len(t.awayToApply) + t.awayHeld
	d.proven = d.proven || t.succeeded > 0
	return t
}

// soaks reports whether minSuccessTime, counted from since, has not passed, and records when it will.
func (d *decider) soaks(name string, since time.Time) bool {
	end := since.Add(d.minSuccess)
	if d.minSuccess == 0 || !end.After(d.now) {
		return false
	}
	d.minSuccessAt = Earlier(d.minSuccessAt, end)
	d.Soaking = append(d.Soaking, Soak{Cluster: name, Until: end})
	return true
}

// sortByAbsence sorts clusters by the time since when they are away, so that an excused cluster
// stays excused when others go missing later.
func (d *decider) sortByAbsence(clusters []string) {
	slices.SortFunc(clusters, func(a, b string) int {
		return cmp.Or(d.clusters[a].PresenceSince.Compare(d.clusters[b].PresenceSince), cmp.Compare(a, b))
	})
}

// expired reports whether the deadline of the strategy, counted from since, has passed. If it has
// not, expired records when it will.
func (d *decider) expired(since time.Time) bool {
	if d.deadline == 0 || since.IsZero() {
		return false
	}
	end := since.Add(d.deadline)
	if end.After(d.now) {
		d.timeOutAt = Earlier(d.timeOutAt, end)
		return false
	}
	return true
}

// deadlineStart returns when the deadline of a progressing, present cluster started. The deadline
// starts again when a cluster returns.
func deadlineStart(cluster Cluster) time.Time {
	if !cluster.Since.IsZero() && cluster.PresenceSince.After(cluster.Since) {
		return cluster.PresenceSince
	}
	return cluster.Since
}
