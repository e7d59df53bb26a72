package placement

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// group is a decision group: the sorted names of its clusters.
type group struct {
	name     string // empty for clusters that no named group selects
	clusters []string
}

// result is the outcome of [schedule].
type result struct {
	groups []group // not empty; each chosen cluster is in one
	chosen int     // clusters in groups
	// members reports whether the sets to choose from have clusters.
	members bool
	// requeueAt is when the result changes without another change; zero means never.
	requeueAt time.Time
	// skipped reports, by fit, whether there are clusters that could not be chosen.
	skipped [eligible]bool
	// skewed and lacking report whether clusters were not chosen since that would exceed the skew of a
	// constraint, and for want of a domain.
	skewed, lacking bool
	// fault is why an expression could not be evaluated for the first such cluster by name; empty if all could.
	fault string
}

// candidate is a cluster that can be chosen.
type candidate struct {
	*cluster
	kept bool // chosen before
	verdict
	score int64 // by which clusters are preferred
}

// schedule chooses from clusters, which are sorted by name, and divides the chosen clusters into
// groups. before contains the previous choice, which changes as little as possible:
//
//   - Clusters are chosen in the order of their scores, as far as constraints of the spread permit. Without
//     a policy for scores, a chosen cluster stays chosen while it is eligible, unless fewer clusters are
//     wanted. Other clusters are added by name, those with a PreferNoSelect taint last.
//   - A cluster stays in its group while the rule of the group selects it and the group is not too
//     large. Other clusters are added to groups by name. There are no more groups than necessary.
//
// used returns how many Placements have chosen a cluster.
func schedule(r *rules, clusters []*cluster, before []group, now time.Time, used func(cluster string) int) result {
	previous := sets.New[string]()
	for _, g := range before {
		previous.Insert(g.clusters...)
	}
	candidates := make([]candidate, 0, len(previous))
	var o result
	requeueAt := int64(0)
	for _, c := range clusters {
		v := r.evaluate(c, now)
		o.members = o.members || v.fit != outside
		requeueAt = earliest(requeueAt, v.changes)
		if o.fault == "" && v.fault != "" {
			o.fault = fmt.Sprintf("for cluster %s, %s", c.name, v.fault)
		}
		kept := previous.Has(c.name)
		if v.fit == eligible || kept && v.fit == keepable {
			candidates = append(candidates, candidate{cluster: c, kept: kept, verdict: v})
		} else {
			o.skipped[v.fit] = true
		}
	}
	r.priorities.score(candidates, used)
	chosen := make([]*candidate, len(candidates))
	for i := range candidates {
		chosen[i] = &candidates[i]
	}
	slices.SortFunc(chosen, func(a, b *candidate) int { return r.priorities.compare(a, b, place{}, place{}) })
	if len(r.constraints) > 0 {
		chosen, o.lacking = r.priorities.spread(r.constraints, chosen, r.wanted)
		o.skewed = r.wanted != everyCluster && len(chosen) < r.wanted && len(chosen) < len(candidates)
	} else if r.wanted != everyCluster && r.wanted < len(chosen) {
		chosen = chosen[:r.wanted]
	}
	o.chosen = len(chosen)
	o.groups = makeGroups(r, chosen, before)
	for _, c := range chosen {
		requeueAt = earliest(requeueAt, c.until)
	}
	if requeueAt != 0 {
		o.requeueAt = time.Unix(requeueAt, 0)
	}
	return o
}

// makeGroups divides the chosen clusters into groups: named groups in the order of the rules, then
// the others.
func makeGroups(r *rules, chosen []*candidate, before []group) []group {
	members := make([][]string, len(r.groups)+1)
	for _, c := range chosen {
		members[c.group] = append(members[c.group], c.name)
	}
	limit := r.groupSize(len(chosen))
	var groups []group
	for i, names := range members {
		var name string
		if i < len(r.groups) {
			name = r.groups[i].name
		}
		var previous [][]string
		for _, g := range before {
			if g.name == name {
				previous = append(previous, g.clusters)
			}
		}
		for _, part := range pack(names, previous, limit, nil) {
			groups = append(groups, group{name: name, clusters: part})
		}
	}
	return groups
}

// pack distributes names over as few bins as possible, with at most limit names per bin, and moves
// as few names as possible. A name stays in its bin of before, bins are removed from the end, and
// free places are filled from the front in the order of the names. Bin i corresponds to before[i].
// Each bin is sorted. reserved, which may be nil, is the number of places per bin of before, less
// than limit, that must stay free; more bins may be necessary because of it.
func pack(names []string, before [][]string, limit int, reserved []int) [][]string {
	slices.Sort(names)
	free := func(bin int) int { // places that may be filled
		if bin < len(reserved) {
			return limit - reserved[bin]
		}
		return limit
	}
	needed := 0
	for places := 0; places < len(names); needed++ {
		places += free(needed)
	}
	placed := make([]bool, len(names))
	bins := make([][]string, needed)
	for b, bin := range before[:min(needed, len(before))] {
		stay := make([]string, 0, len(bin))
		for _, name := range bin {
			if i, found := slices.BinarySearch(names, name); found && !placed[i] && len(stay) < limit {
				stay = append(stay, name)
				placed[i] = true
			}
		}
		bins[b] = stay
	}
	at := 0
	for i, name := range names {
		if placed[i] {
			continue
		}
		for len(bins[at]) >= free(at) {
			at++
		}
		bins[at] = append(bins[at], name)
	}
	for _, bin := range bins {
		slices.Sort(bin)
	}
	return bins
}
