package placement

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// The scores that a prioritizer gives are from -maxScore to maxScore.
const (
	maxScore  = 100
	maxWeight = 10
)

// priorities are the prioritizers of a Placement with their weights. Without a policy, who is chosen stays.
type priorities struct {
	policy                       bool
	steady, balance, cpu, memory int64
	addOns                       []addOnWeight
}

// addOnWeight is the weight of a score.
type addOnWeight struct {
	resource, score string
	weight          int64
}

func newPriorities(p clusterv1beta1.PrioritizerPolicy) (priorities, error) {
	if p.Mode == "" && len(p.Configurations) == 0 {
		return priorities{}, nil
	}
	w := priorities{policy: true}
	if p.Mode != clusterv1beta1.PrioritizerPolicyModeExact {
		w.steady, w.balance = 1, 1
	}
	var errs []error
	if p.Mode != "" && p.Mode != clusterv1beta1.PrioritizerPolicyModeAdditive && p.Mode != clusterv1beta1.PrioritizerPolicyModeExact {
		errs = append(errs, fmt.Errorf("mode: unknown mode %q: must be Additive or Exact", p.Mode))
	}
	for i, c := range p.Configurations {
		if err := w.set(c); err != nil {
			errs = append(errs, fmt.Errorf("configurations[%d]: %w", i, err))
		}
	}
	return w, errors.Join(errs...)
}

func (w *priorities) set(c clusterv1beta1.PrioritizerConfig) error {
	weight, of := int64(c.Weight), c.ScoreCoordinate
	switch {
	case weight < -maxWeight || weight > maxWeight:
		return fmt.Errorf("weight is %d: must be from -%d to %d", weight, maxWeight, maxWeight)
	case of == nil:
		return errors.New("has no scoreCoordinate")
	case of.Type == clusterv1beta1.ScoreCoordinateTypeAddOn:
		if of.AddOn == nil || of.AddOn.ResourceName == "" || of.AddOn.ScoreName == "" {
			return errors.New("scoreCoordinate of type AddOn needs addOn.resourceName and addOn.scoreName")
		}
		w.addOns = append(w.addOns, addOnWeight{resource: of.AddOn.ResourceName, score: of.AddOn.ScoreName, weight: weight})
		return nil
	case of.Type != "" && of.Type != clusterv1beta1.ScoreCoordinateTypeBuiltIn:
		return fmt.Errorf("unknown type %q: must be BuiltIn or AddOn", of.Type)
	}
	switch of.BuiltIn {
	case clusterv1beta1.PrioritizerSteady:
		w.steady = weight
	case clusterv1beta1.PrioritizerBalance:
		w.balance = weight
	case clusterv1beta1.PrioritizerResourceAllocatableCPU:
		w.cpu = weight
	case clusterv1beta1.PrioritizerResourceAllocatableMemory:
		w.memory = weight
	default:
		return fmt.Errorf("unknown prioritizer %q: must be Balance, Steady, ResourceAllocatableCPU or ResourceAllocatableMemory", of.BuiltIn)
	}
	return nil
}

// rating is what prioritizers read of one cluster. Clusters with equal ratings are treated equally.
type rating struct {
	addOns      int64 // the sum of the weighted scores of add-ons
	cpu, memory int64 // allocatable; 0 if nobody asks
}

// rate returns the rating of a cluster, and when it changes without another change; 0 means never.
func (w *priorities) rate(c *cluster, now int64) (r rating, until int64) {
	for _, a := range w.addOns {
		s, valid := c.valid(a.resource, now)
		until = earliest(until, valid)
		if s == nil {
			continue
		}
		for _, item := range s.Status.Scores {
			if item.Name == a.score {
				r.addOns += a.weight * max(-maxScore, min(maxScore, int64(item.Value)))
			}
		}
	}
	if w.cpu != 0 {
		quantity := c.object.Status.Allocatable[clusterv1.ResourceName("cpu")]
		r.cpu = quantity.MilliValue()
	}
	if w.memory != 0 {
		quantity := c.object.Status.Allocatable[clusterv1.ResourceName("memory")]
		r.memory = quantity.Value()
	}
	return r, until
}

// score sets the scores of candidates, which depend on those of each other. used returns how many Placements have
// chosen a cluster.
func (w *priorities) score(candidates []candidate, used func(cluster string) int) {
	cpu, memory, usage := newRange(), newRange(), newRange()
	others := make([]int64, len(candidates)) // how many other Placements have chosen each
	for i := range candidates {
		c := &candidates[i]
		cpu.add(c.rating.cpu)
		memory.add(c.rating.memory)
		if w.balance != 0 {
			others[i] = int64(used(c.name))
			if c.kept {
				others[i]--
			}
			others[i] = max(0, others[i])
			usage.add(others[i])
		}
	}
	usage.low = 0
	for i := range candidates {
		c := &candidates[i]
		c.score = c.rating.addOns + w.cpu*cpu.scale(c.rating.cpu) + w.memory*memory.scale(c.rating.memory) - w.balance*usage.scale(others[i])
		if c.kept {
			c.score += w.steady * maxScore
		}
	}
}

// valueRange is the range of some values.
type valueRange struct{ low, high int64 }

func newRange() valueRange { return valueRange{low: math.MaxInt64, high: math.MinInt64} }

func (r *valueRange) add(v int64) { r.low, r.high = min(r.low, v), max(r.high, v) }

// scale maps the range to the range of scores, and v in it to its score; the lowest if all values are equal.
func (r *valueRange) scale(v int64) int64 {
	if r.high <= r.low {
		return -maxScore
	}
	return int64(math.Round(2*maxScore*float64(v-r.low)/float64(r.high-r.low))) - maxScore
}

// place is where a candidate comes when it is chosen.
type place struct {
	penalty int64 // lowers its score
	level   int64 // by how many clusters its domains have more than others
}

// compare returns a negative number if a in a place is preferred to b in another one.
func (w *priorities) compare(a, b *candidate, inA, inB place) int {
	return cmp.Or(
		cmp.Compare(w.tier(a), w.tier(b)),
		cmp.Compare(b.score-inB.penalty, a.score-inA.penalty),
		first(a.kept, b.kept), cmp.Compare(inA.level, inB.level), first(!a.avoid, !b.avoid), strings.Compare(a.name, b.name),
	)
}

// tier is what precedes the score of a candidate: without a policy, who is chosen stays; nobody with a PreferNoSelect
// taint is newly chosen if there are others.
func (w *priorities) tier(c *candidate) int {
	switch {
	case c.avoid && !c.kept:
		return 2
	case !w.policy && !c.kept:
		return 1
	default:
		return 0
	}
}

// first orders those for which something holds before the others.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
