package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
)

// Decision is the outcome of a strategy at one moment. All lists of clusters are in rollout order:
// mandatory groups first, then groups by index (Progressive: all other clusters in one sequence),
// and by name within a group.
type Decision struct {
	// Start lists the clusters that do not have the current template and receive it now.
	Start []string
	// Rollout lists all clusters that should have the current template now: Start, and the clusters
	// that have it.
	Rollout []string
	// Waiting lists the clusters that do not have the current template and do not receive it yet.
	Waiting []string
	// Failed lists the clusters that report a failure and have not timed out.
	Failed []string
	// TimedOut lists the clusters for which the deadline of the strategy has passed.
	TimedOut []string
	// Exceeded lists the failed and timed-out clusters of the first group, or sequence, in which there are
	// more of them than the strategy tolerates.
	Exceeded []string
	// StoppedBy is Exceeded if it keeps Waiting clusters from starting.
	StoppedBy []string
	// Soaking lists the clusters that hold a slot although they succeeded, since minSuccessTime has not
	// passed, if there are Waiting clusters.
	Soaking []Soak
	// Missing lists the mandatory groups that the strategy names and the placement does not have.
	// Nothing starts while a group named by GroupName is missing. A group named by GroupIndex is
	// ignored.
	Missing []clusterv1alpha1.MandatoryDecisionGroup
	// Unrendered is the number of clusters that are skipped because there is no template for them.
	Unrendered int
	// Done reports that every cluster succeeded or is skipped, and none is Unrendered. It is true if there are no clusters.
	Done bool
	// Proven reports that the template succeeded for minSuccessTime everywhere it was: on some cluster, and on
	// all but skipped ones and those that were away before they could receive it. None is Unrendered.
	Proven bool
	// RequeueAt is when to decide again if nothing has changed until then; zero means never.
	RequeueAt time.Time
}

// Soak is a cluster that must stay successful until a time.
type Soak struct {
	Cluster string
	Until   time.Time
}

// Decide returns which clusters receive the current template now. A cluster that the map does not
// contain is ToApply and present. A cluster that is in no group is ignored. Decide takes O(n log n)
// for n clusters and does not modify its arguments.
func (s Strategy) Decide(groups []Group, clusters map[string]Cluster, now time.Time) Decision {
	d := s.decide(ordered(groups), clusters, now)
	return d.result()
}

// decide returns a decider that has decided about groups that are ordered.
func (s Strategy) decide(groups []Group, clusters map[string]Cluster, now time.Time) decider {
	d := decider{Strategy: s, clusters: clusters, now: now}
	mandatory, others := d.split(groups)
	for _, group := range append(slices.Clone(mandatory), others...) {
		d.total += len(group.Clusters)
	}

	for _, group := range mandatory {
		d.decideGroup(group, true)
	}
	switch s.kind {
	case clusterv1alpha1.Progressive:
		var sequence []string
		for _, group := range others {
			sequence = append(sequence, group.Clusters...)
		}
		slices.Sort(sequence)
		d.decideSequence(sequence, d.total)
	case clusterv1alpha1.ProgressivePerGroup:
		for _, group := range others {
			d.decideGroup(group, false)
		}
	default:
		var failures []string
		for _, group := range others {
			t := d.count(group.Clusters, func(tally) int { return len(group.Clusters) })
			d.assign(group.Clusters, slices.Concat(t.toApply, t.awayToApply))
			failures = append(failures, t.failures()...)
		}
		d.blockIf(len(failures) > d.maxFailures.Resolve(d.total), failures)
	}
	return d
}

// result returns the decision.
func (d *decider) result() Decision {
	d.Done = d.finished == d.total
	d.Proven = d.proven && d.finished+d.absent == d.total && d.minSuccessAt.IsZero()
	d.RequeueAt = Earlier(d.timeOutAt, d.minSuccessAt)
	if len(d.Waiting) == 0 {
		d.Soaking = nil
	} else {
		d.StoppedBy = d.Exceeded
	}
	return d.Decision
}

// decider is the working state of one call of Decide.
type decider struct {
	Strategy
	Decision
	clusters     map[string]Cluster
	now          time.Time
	blocked      bool      // no further cluster starts
	proven       bool      // some cluster succeeded
	total        int       // clusters
	finished     int       // clusters that succeeded or are skipped, without Unrendered ones
	absent       int       // clusters that were away before they could receive the template
	timeOutAt    time.Time // the earliest time-out to come
	minSuccessAt time.Time // the earliest end of a minSuccessTime to come
}

// split separates the mandatory groups of the strategy from the others. Both are ordered by index.
func (d *decider) split(groups []Group) (mandatory, others []Group) {
	names := func(named clusterv1alpha1.MandatoryDecisionGroup, group Group) bool {
		if named.GroupName != "" {
			return named.GroupName == group.Name
		}
		return int(named.GroupIndex) == group.Index
	}
	for _, named := range d.mandatory {
		if !slices.ContainsFunc(groups, func(group Group) bool { return names(named, group) }) {
			d.Missing = append(d.Missing, named)
			d.blocked = d.blocked || named.GroupName != ""
		}
	}
	for _, group := range groups {
		if slices.ContainsFunc(d.mandatory, func(named clusterv1alpha1.MandatoryDecisionGroup) bool { return names(named, group) }) {
			mandatory = append(mandatory, group)
		} else {
			others = append(others, group)
		}
	}
	return mandatory, others
}

// decideGroup starts every cluster of the group unless an earlier group blocks, and blocks later
// groups until all its clusters have succeeded. If it is not mandatory, maxFailures of them may
// fail.
func (d *decider) decideGroup(group Group, mandatory bool) {
	tolerated := d.maxFailures.Resolve(len(group.Clusters))
	excusable := func(t tally) int { return t.succeeded }
	if mandatory {
		tolerated, excusable = 0, func(tally) int { return 0 }
	}
	t := d.count(group.Clusters, excusable)
	failures := t.failures()
	d.blockIf(len(failures) > tolerated, failures)
	d.startGroup(group.Clusters, t)
	noneSucceeded := t.succeeded == 0 && t.skipped < len(group.Clusters)
	d.blocked = d.blocked || len(t.toApply)+t.held > 0 || t.inProgress > 0 || mandatory && noneSucceeded
}

// decideSequence starts as many clusters as there are free slots. maxFailures is relative to total,
// the number of all clusters of the placement.
func (d *decider) decideSequence(clusters []string, total int) {
	slots := d.concurrency.Resolve(len(clusters))
	if slots == 0 {
		slots = len(clusters)
	}
	t := d.count(clusters, func(tally) int { return slots })
	failures := t.failures()
	d.blockIf(len(failures) > d.maxFailures.Resolve(total), failures)
	var starting []string
	if !d.blocked {
		starting = slices.Concat(
			first(t.toApply, slots-t.inProgress-len(t.failed)), first(t.awayToApply, slots-t.excused))
	}
	d.assign(clusters, starting)
}

// blockIf blocks the rest of the rollout because of the failures, unless it is blocked already.
func (d *decider) blockIf(exceeded bool, failures []string) {
	if exceeded && !d.blocked {
		d.blocked = true
		d.Exceeded = failures
	}
}

// startGroup starts every cluster of a group unless the rollout is blocked. Clusters that are away
// start only in the first group, or after some cluster has succeeded.
func (d *decider) startGroup(clusters []string, t tally) {
	var starting []string
	if !d.blocked {
		starting = t.toApply
		if len(d.Rollout) == 0 || d.proven {
			starting = slices.Concat(starting, t.awayToApply)
		}
	}
	d.assign(clusters, starting)
}

// assign adds the clusters to the lists of the decision, in their order. starting are the clusters
// that receive the template now; so do those that are away with an abandoned one, or have not applied it yet.
func (d *decider) assign(clusters, starting []string) {
	starts := sets.New(starting...)
	for _, name := range clusters {
		switch c := d.clusters[name]; {
		case c.Status == Skip:
		case c.Status != ToApply:
			d.Rollout = append(d.Rollout, name)
		case starts.Has(name), c.Abandoned && (c.Away || c.Staged):
			d.Start = append(d.Start, name)
			d.Rollout = append(d.Rollout, name)
		default:
			d.Waiting = append(d.Waiting, name)
		}
	}
}

func first(names []string, n int) []string { return names[:max(0, min(n, len(names)))] }

// Earlier returns the earlier of two times. The zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
