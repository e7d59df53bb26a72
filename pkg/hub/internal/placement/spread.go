package placement

import (
	"errors"
	"fmt"
	"slices"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// maxConstraints is the maximum number of spread constraints of a Placement.
const maxConstraints = 8

// constraint distributes chosen clusters over domains, the values of a label or claim.
type constraint struct {
	key     string
	claim   bool
	maxSkew int64
	hard    bool // DoNotSchedule
}

func newConstraints(p clusterv1beta1.SpreadPolicy) ([]constraint, error) {
	if n := len(p.SpreadConstraints); n > maxConstraints {
		return nil, fmt.Errorf("there are %d, at most %d are allowed", n, maxConstraints)
	}
	var constraints []constraint
	var errs []error
	for i, t := range p.SpreadConstraints {
		c := constraint{
			key: t.TopologyKey, claim: t.TopologyKeyType == clusterv1beta1.TopologyKeyTypeClaim,
			maxSkew: max(1, int64(t.MaxSkew)), hard: t.WhenUnsatisfiable == clusterv1beta1.DoNotSchedule,
		}
		switch {
		case t.TopologyKey == "":
			errs = append(errs, fmt.Errorf("[%d]: has no topologyKey", i))
		case !c.claim && t.TopologyKeyType != clusterv1beta1.TopologyKeyTypeLabel:
			errs = append(errs, fmt.Errorf("[%d]: unknown topologyKeyType %q: must be Label or Claim", i, t.TopologyKeyType))
		case !c.hard && t.WhenUnsatisfiable != "" && t.WhenUnsatisfiable != clusterv1beta1.ScheduleAnyway:
			errs = append(errs, fmt.Errorf("[%d]: unknown whenUnsatisfiable %q: must be DoNotSchedule or ScheduleAnyway", i, t.WhenUnsatisfiable))
		}
		constraints = append(constraints, c)
	}
	return constraints, errors.Join(errs...)
}

// domains are the domains of a cluster, by constraint; empty for none.
type domains [maxConstraints]string

// domainsOf returns the domains of a cluster. Each begins with a character of its own, so that a value may be empty.
func domainsOf(constraints []constraint, c *cluster) (d domains) {
	for i, of := range constraints {
		values := c.labels
		if of.claim {
			values = c.claims
		}
		if value, ok := values[of.key]; ok {
			d[i] = "=" + value
		}
	}
	return d
}

// spread chooses up to wanted of candidates, which are in the order of preference, as constraints demand. It takes
// one after the other: of those that may be taken the one that is preferred, where each cluster by which its domain
// would exceed the skew of a ScheduleAnyway constraint counts like a prioritizer's worst score. No step exceeds the
// skew of a DoNotSchedule constraint. Without scores, who was chosen before is taken first, and others where there
// are the fewest, so that no cluster moves but for a constraint. lacking is true if a candidate was left out for want of a domain.
//
// Candidates of the same domains form a queue. The queues are in the order of their heads, so that none is looked at
// behind one that nothing is against. Otherwise a choice costs their number.
func (w *priorities) spread(constraints []constraint, candidates []*candidate, wanted int) (chosen []*candidate, lacking bool) {
	tallies := make([]tally, len(constraints))
	for i := range tallies {
		tallies[i].counts = make(map[string]int64)
	}
	byDomains := make(map[domains]*queue)
	var queues []*queue // in the order of preference of their heads
	for _, c := range candidates {
		of := domainsOf(constraints, c.cluster)
		if misses(constraints, of) {
			lacking = true
			continue
		}
		q := byDomains[of]
		if q == nil {
			q = &queue{domains: of}
			byDomains[of] = q
			queues = append(queues, q)
			for i := range constraints {
				tallies[i].add(of[i])
			}
		}
		q.waiting = append(q.waiting, c)
	}
	for wanted == everyCluster || len(chosen) < wanted {
		best, bestPlace := -1, place{}
		for i, q := range queues {
			next, allowed := nextPlace(constraints, tallies, q.domains)
			if !allowed {
				continue
			}
			if best < 0 || w.compare(q.waiting[0], queues[best].waiting[0], next, bestPlace) < 0 {
				best, bestPlace = i, next
			}
			if next == (place{}) {
				break
			}
		}
		if best < 0 {
			break
		}
		q := queues[best]
		chosen = append(chosen, q.waiting[0])
		for i := range constraints {
			tallies[i].count(q.domains[i])
		}
		queues = slices.Delete(queues, best, best+1)
		if q.waiting = q.waiting[1:]; len(q.waiting) > 0 {
			at, _ := slices.BinarySearchFunc(queues, q, func(a, b *queue) int {
				return w.compare(a.waiting[0], b.waiting[0], place{}, place{})
			})
			queues = slices.Insert(queues, at, q)
		}
	}
	return chosen, lacking
}

// queue has the candidates of the same domains that are not taken yet.
type queue struct {
	domains domains
	waiting []*candidate
}

// misses reports whether a cluster lacks a domain that a DoNotSchedule constraint needs.
func misses(constraints []constraint, d domains) bool {
	for i, c := range constraints {
		if c.hard && d[i] == "" {
			return true
		}
	}
	return false
}

// nextPlace returns the place of the next cluster of these domains, and whether one may be taken.
func nextPlace(constraints []constraint, tallies []tally, d domains) (next place, allowed bool) {
	for i, c := range constraints {
		level := tallies[i].counts[d[i]] - tallies[i].fewest
		excess := level + 1 - c.maxSkew
		if excess > 0 && c.hard {
			return place{}, false
		}
		next.penalty += maxScore * max(0, excess)
		next.level += level
	}
	return next, true
}

// tally counts the clusters that are taken, by domain.
type tally struct {
	counts   map[string]int64
	fewest   int64 // the lowest count
	atFewest int   // domains with it
}

// add adds a domain, before any cluster is taken.
func (t *tally) add(domain string) {
	if _, known := t.counts[domain]; !known {
		t.counts[domain] = 0
		t.atFewest++
	}
}

// count counts a cluster that is chosen.
func (t *tally) count(domain string) {
	t.counts[domain]++
	if t.counts[domain]-1 != t.fewest {
		return
	}
	if t.atFewest--; t.atFewest > 0 {
		return
	}
	t.fewest++
	for _, n := range t.counts {
		if n == t.fewest {
			t.atFewest++
		}
	}
}
