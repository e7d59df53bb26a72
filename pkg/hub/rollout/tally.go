package rollout

import (
	"cmp"
	"slices"
	"time"
)

// tally is how the clusters of a group, or of the row, do. Names are in the order in which they were counted.
type tally struct {
	toApply     []string // present, without the template
	awayToApply []string // away, without it
	busy        int      // have it and hold a place: on their way, missing and not excused, or not succeeded for long enough
	excused     int      // have it, and were away before they got it
	failed      []string
	timedOut    []string
	succeeded   int
	skipped     int
}

func (t tally) failures() []string {
	names := slices.Concat(t.failed, t.timedOut)
	slices.Sort(names)
	return names
}

// count tells how the clusters do, and notes those that failed or timed out in the decision. excuse says how many
// missing clusters are excused: it sees the tally without them.
func (d *decider) count(clusters []string, excuse func(tally) int) tally {
	var t tally
	var missing []string
	timedOut := map[string]bool{}
	for _, name := range clusters {
		cluster := d.clusters[name]
		switch cluster.Status {
		case ToApply:
			if cluster.Away {
				t.awayToApply = append(t.awayToApply, name)
			} else {
				t.toApply = append(t.toApply, name)
			}
		case Progressing:
			switch {
			case cluster.Away && !cluster.PresenceSince.After(cluster.Since):
				t.excused++
			case cluster.Away:
				missing = append(missing, name)
			default:
				d.progress(&t, timedOut, name, begun(cluster))
			}
		case Succeeded:
			t.succeeded++
			if end := cluster.Since.Add(d.minSuccess); d.minSuccess > 0 && end.After(d.now) {
				t.busy++
				d.settledAt = earlier(d.settledAt, end)
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
			t.skipped++
		}
	}
	slices.SortFunc(missing, func(a, b string) int { // those excused stay so when others go missing too
		return cmp.Or(d.clusters[a].PresenceSince.Compare(d.clusters[b].PresenceSince), cmp.Compare(a, b))
	})
	for _, name := range missing[min(len(missing), excuse(t)):] {
		d.progress(&t, timedOut, name, d.clusters[name].Since)
	}
	for _, name := range clusters {
		if timedOut[name] {
			t.timedOut = append(t.timedOut, name)
		}
	}
	d.Failed = append(d.Failed, t.failed...)
	d.TimedOut = append(d.TimedOut, t.timedOut...)
	d.finished += t.succeeded + t.skipped
	d.proven = d.proven || t.succeeded > 0
	return t
}

// progress counts a cluster that is on its way since then.
func (d *decider) progress(t *tally, timedOut map[string]bool, name string, since time.Time) {
	if d.expired(since) {
		timedOut[name] = true
	} else {
		t.busy++
	}
}

// expired tells whether the deadline of the strategy is over for what began then, and notes when it will be.
func (d *decider) expired(since time.Time) bool {
	if d.deadline == 0 || since.IsZero() {
		return false
	}
	end := since.Add(d.deadline)
	if end.After(d.now) {
		d.timeOutAt = earlier(d.timeOutAt, end)
		return false
	}
	return true
}

// begun is when the deadline of a cluster that is present and on its way began: it begins again when a cluster returns.
func begun(cluster Cluster) time.Time {
	if !cluster.Since.IsZero() && cluster.PresenceSince.After(cluster.Since) {
		return cluster.PresenceSince
	}
	return cluster.Since
}
