package placement

import (
	"slices"
	"time"
)

// group is a decision group: clusters by name, in the order of their names.
type group struct {
	name     string // empty: of the clusters that no named group selects
	clusters []string
}

// outcome is what a placement comes to.
type outcome struct {
	groups []group   // none is empty; each chosen cluster is in one
	chosen int       // clusters in groups
	again  time.Time // when time alone changes the choice; zero: never
	// passedOver tells which kinds of clusters there are that were not chosen,
	// though more were wanted.
	passedOver [eligible]bool
}

// candidate is a cluster that may be chosen.
type candidate struct {
	name string
	verdict
}

// schedule chooses among clusters, which are in the order of their names, and
// divides what it has chosen into groups. before is what was chosen last time:
//
//   - A cluster that was chosen stays while it is eligible, as long as not fewer
//     clusters are wanted. Free places go to others, by name, those with a
//     PreferNoSelect taint last.
//   - A cluster stays in its group while that group's rule selects it and the
//     group is not too large. Free places in groups go to clusters by name.
//     There are never more groups than are needed.
func schedule(r *rules, clusters []*cluster, before []group, now time.Time) outcome {
	was := make(map[string]bool, len(clusters))
	for _, g := range before {
		for _, name := range g.clusters {
			was[name] = true
		}
	}
	kept, fresh := make([]candidate, 0, len(was)), []candidate(nil)
	var o outcome
	for _, c := range clusters {
		switch v := r.judge(c, now); {
		case v.fit >= keepable && was[c.name]:
			kept = append(kept, candidate{c.name, v})
		case v.fit == eligible:
			fresh = append(fresh, candidate{c.name, v})
		default:
			o.passedOver[v.fit] = true
		}
	}
	chosen := append(inOrder(kept), inOrder(fresh)...)
	if r.wanted != everyCluster && r.wanted < len(chosen) {
		chosen = chosen[:r.wanted]
	}
	o.chosen = len(chosen)
	o.groups = divide(r, chosen, before)
	for _, c := range chosen {
		if end := time.Unix(c.until, 0); c.until != 0 && (o.again.IsZero() || end.Before(o.again)) {
			o.again = end
		}
	}
	return o
}

// inOrder puts candidates that are better avoided behind the others.
func inOrder(of []candidate) []candidate {
	slices.SortStableFunc(of, func(a, b candidate) int {
		switch {
		case a.avoid == b.avoid:
			return 0
		case a.avoid:
			return 1
		default:
			return -1
		}
	})
	return of
}

// divide makes groups of the chosen clusters, those of named groups first, in
// the order of the rules.
func divide(r *rules, chosen []candidate, before []group) []group {
	members := make([][]string, len(r.groups)+1)
	for _, c := range chosen {
		members[c.group] = append(members[c.group], c.name)
	}
	limit := r.perGroup.of(len(chosen))
	var groups []group
	for i, names := range members {
		var name string
		if i < len(r.groups) {
			name = r.groups[i].name
		}
		var earlier [][]string
		for _, g := range before {
			if g.name == name {
				earlier = append(earlier, g.clusters)
			}
		}
		for _, part := range pack(names, earlier, limit, nil) {
			groups = append(groups, group{name: name, clusters: part})
		}
	}
	return groups
}

// pack puts names into as few bins as hold them, limit in each, with as few
// moves as that allows: a name stays in the bin of before that it is in, bins
// that are not needed are given up from the end, and free places are filled from
// the front, in the order of the names. Bin i is what became of before[i], and
// each is sorted. reserved, which may be nil, is how many places of a bin of
// before, fewer than limit, have to stay free; there may be bins more on account
// of them.
func pack(names []string, before [][]string, limit int, reserved []int) [][]string {
	slices.Sort(names)
	free := func(bin int) int { // places to fill
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
