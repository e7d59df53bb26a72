package rollout

import (
	"slices"
	"time"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
)

// Decision is what a strategy says at one moment. All lists of clusters are in the order of the rollout: mandatory
// groups first, then groups by index (Progressive: all other clusters in one row), by name within.
type Decision struct {
	// Begin are clusters that do not have the current template and get it now.
	Begin []string
	// Rollout are all clusters that shall have the current template now: those of Begin, and those that have it.
	Rollout []string
	// Waiting are clusters that do not have the current template, and do not get it yet.
	Waiting []string
	// Failed are clusters that report a failure and have not timed out.
	Failed []string
	// TimedOut are clusters that were given up, for the deadline of the strategy.
	TimedOut []string
	// StoppedBy are the failed and timed-out clusters because of which those of Waiting wait, when they are more than
	// the strategy tolerates.
	StoppedBy []string
	// Missing are mandatory groups that the strategy names and the placement does not have. Nothing is begun with
	// while a group of that name is missing; one that is named by its index is passed over.
	Missing []clusterv1alpha1.MandatoryDecisionGroup
	// Done says that every cluster succeeded or is skipped; also if there is none.
	Done bool
	// Again is when to decide again if nothing else has changed until then; zero: then there is nothing to decide.
	Again time.Time
}

// Decide says which clusters get the current template now. Clusters which the map does not have are ToApply and
// present; those which no group has are ignored. It takes O(n log n) for n clusters, and changes none of its arguments.
func (s Strategy) Decide(groups []Group, clusters map[string]Cluster, now time.Time) Decision {
	d := decider{Strategy: s, clusters: clusters, now: now}
	mandatory, others := d.split(ordered(groups))
	total := 0
	for _, group := range append(slices.Clone(mandatory), others...) {
		total += len(group.Clusters)
	}

	switch s.kind {
	case clusterv1alpha1.Progressive:
		for _, group := range mandatory {
			d.mandatoryGroup(group)
		}
		var row []string
		for _, group := range others {
			row = append(row, group.Clusters...)
		}
		slices.Sort(row)
		d.row(row, total)
	case clusterv1alpha1.ProgressivePerGroup:
		for _, group := range mandatory {
			d.mandatoryGroup(group)
		}
		for _, group := range others {
			d.group(group)
		}
	default:
		for _, group := range others {
			d.all(group)
		}
	}
	d.Done = d.finished == total
	return d.decision()
}

// decider is a decision in the making.
type decider struct {
	Strategy
	Decision
	clusters  map[string]Cluster
	now       time.Time
	blocked   bool      // nothing further is begun with
	stoppers  []string  // failures because of which it is blocked
	proven    bool      // some cluster succeeded
	finished  int       // clusters that succeeded or are skipped
	timeOutAt time.Time // the first time-out to come
	settledAt time.Time // the first end of a minSuccessTime to come
}

// split gives the groups that the strategy says must come first, and the others, each by index.
func (d *decider) split(groups []Group) (mandatory, others []Group) {
	names, indexes := map[string]bool{}, map[int]bool{}
	for _, group := range groups {
		names[group.Name], indexes[group.Index] = true, true
	}
	byName, byIndex := map[string]bool{}, map[int]bool{}
	for _, named := range d.mandatory {
		switch {
		case named.GroupName != "":
			byName[named.GroupName] = true
			if !names[named.GroupName] {
				d.Missing = append(d.Missing, named)
				d.blocked = true
			}
		default:
			byIndex[int(named.GroupIndex)] = true
			if !indexes[int(named.GroupIndex)] {
				d.Missing = append(d.Missing, named)
			}
		}
	}
	for _, group := range groups {
		if byIndex[group.Index] || byName[group.Name] {
			mandatory = append(mandatory, group)
		} else {
			others = append(others, group)
		}
	}
	return mandatory, others
}

// all begins with every cluster of the group.
func (d *decider) all(group Group) {
	t := d.count(group.Clusters, func(tally) int { return len(group.Clusters) })
	d.begin(group.Clusters, slices.Concat(t.toApply, t.awayToApply))
}

// mandatoryGroup begins with every cluster of the group, unless a group before it blocks, and blocks what comes after
// until all have succeeded.
func (d *decider) mandatoryGroup(group Group) {
	t := d.count(group.Clusters, func(tally) int { return 0 })
	failures := t.failures()
	d.stopIf(len(failures) > 0, failures)
	d.beginGroup(group.Clusters, t)
	nobody := t.succeeded == 0 && t.skipped < len(group.Clusters)
	d.blocked = d.blocked || len(t.toApply) > 0 || t.busy > 0 || nobody
}

// group does the same, and lets maxFailures of its clusters fail.
func (d *decider) group(group Group) {
	t := d.count(group.Clusters, func(t tally) int { return t.succeeded })
	failures := t.failures()
	d.stopIf(len(failures) > d.maxFailures.of(len(group.Clusters)), failures)
	d.beginGroup(group.Clusters, t)
	d.blocked = d.blocked || len(t.toApply) > 0 || t.busy > 0
}

// row begins with as many clusters as there are places. Failures are measured by the number of all clusters of the
// placement.
func (d *decider) row(clusters []string, total int) {
	places := d.concurrency.of(len(clusters))
	if places == 0 {
		places = len(clusters)
	}
	t := d.count(clusters, func(tally) int { return places })
	failures := t.failures()
	d.stopIf(len(failures) > d.maxFailures.of(total), failures)
	var next []string
	if !d.blocked {
		next = slices.Concat(
			first(t.toApply, places-t.busy-len(t.failed)), first(t.awayToApply, places-t.excused))
	}
	d.begin(clusters, next)
}

// stopIf blocks everything that comes, because of these failures, unless something else did before.
func (d *decider) stopIf(stop bool, failures []string) {
	if stop && !d.blocked {
		d.blocked = true
		d.stoppers = failures
	}
}

// beginGroup begins with every cluster of a group, unless something blocks. Those that are away get the template only
// in the first group, or when some cluster has succeeded with it.
func (d *decider) beginGroup(clusters []string, t tally) {
	var next []string
	if !d.blocked {
		next = t.toApply
		if len(d.Rollout) == 0 || d.proven {
			next = slices.Concat(next, t.awayToApply)
		}
	}
	d.begin(clusters, next)
}

// begin puts the clusters where they belong in the decision. next are those that get the template now.
func (d *decider) begin(clusters, next []string) {
	now := make(map[string]bool, len(next))
	for _, name := range next {
		now[name] = true
	}
	for _, name := range clusters {
		switch status := d.clusters[name].Status; {
		case status == Skip:
		case status != ToApply:
			d.Rollout = append(d.Rollout, name)
		case now[name]:
			d.Begin = append(d.Begin, name)
			d.Rollout = append(d.Rollout, name)
		default:
			d.Waiting = append(d.Waiting, name)
		}
	}
}

// decision completes the decision with what follows from all groups together.
func (d *decider) decision() Decision {
	d.Again = d.timeOutAt
	if len(d.Waiting) > 0 {
		d.StoppedBy = d.stoppers
		d.Again = earlier(d.Again, d.settledAt)
	}
	return d.Decision
}

func first(names []string, n int) []string { return names[:max(0, min(n, len(names)))] }

// earlier is the earlier of two times, of which zero stands for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
