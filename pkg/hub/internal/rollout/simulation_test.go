package rollout_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// simulation is a rollout of one placement, generated from a seed.
type simulation struct {
	random    *rand.Rand
	from      clusterv1alpha1.RolloutStrategy
	strategy  rollout.Strategy
	options   clusterv1alpha1.RolloutConfig
	deadline  time.Duration
	groups    []rollout.Group // by index
	mandatory map[int]bool    // by index
	clusters  map[string]rollout.Cluster
	now       time.Time
}

// newSimulation generates a strategy, groups, and clusters without the template.
func newSimulation(t *testing.T, seed uint64) *simulation {
	t.Helper()
	s := &simulation{
		random:    rand.New(rand.NewPCG(seed, 7)),
		mandatory: map[int]bool{}, clusters: map[string]rollout.Cluster{}, now: now,
	}
	s.makeGroups()
	s.options = config(time.Duration(s.random.IntN(3))*5*time.Minute, "", s.amount())
	if s.random.IntN(2) == 0 {
		s.deadline = time.Duration(1+s.random.IntN(20)) * time.Minute
		s.options.ProgressDeadline = s.deadline.String()
	}
	switch s.random.IntN(5) {
	case 0:
		s.from = clusterv1alpha1.RolloutStrategy{All: &clusterv1alpha1.RolloutAll{RolloutConfig: s.options}}
	case 1, 2:
		s.from = progressive(s.amount(), s.options)
		s.from.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups = s.makeMandatory()
	default:
		s.from = perGroup(s.options)
		s.from.ProgressivePerGroup.MandatoryDecisionGroups.MandatoryDecisionGroups = s.makeMandatory()
	}
	strategy, err := rollout.Parse(&s.from)
	if err != nil {
		t.Fatal(err)
	}
	s.strategy = strategy
	return s
}

func (s *simulation) makeGroups() {
	clusters := s.random.IntN(30)
	for index := range 1 + s.random.IntN(5) {
		name := ""
		if s.random.IntN(2) == 0 {
			name = string(rune('p' + s.random.IntN(3))) // often the same
		}
		s.groups = append(s.groups, rollout.Group{Index: 3 * index, Name: name})
	}
	for _, i := range s.random.Perm(clusters) {
		group := &s.groups[s.random.IntN(len(s.groups))]
		group.Clusters = append(group.Clusters, fmt.Sprintf("c%02d", i))
	}
	for _, group := range s.groups {
		for _, name := range group.Clusters {
			s.clusters[name] = rollout.Cluster{}
		}
	}
}

func (s *simulation) makeMandatory() []clusterv1alpha1.MandatoryDecisionGroup {
	var named []clusterv1alpha1.MandatoryDecisionGroup
	for range s.random.IntN(3) {
		group := s.groups[s.random.IntN(len(s.groups))]
		if group.Name == "" {
			named = append(named, clusterv1alpha1.MandatoryDecisionGroup{GroupIndex: int32(group.Index)})
			s.mandatory[group.Index] = true
			continue
		}
		named = append(named, clusterv1alpha1.MandatoryDecisionGroup{GroupName: group.Name})
		for _, other := range s.groups {
			if other.Name == group.Name {
				s.mandatory[other.Index] = true
			}
		}
	}
	return named
}

func (s *simulation) amount() string {
	switch s.random.IntN(3) {
	case 0:
		return strconv.Itoa(s.random.IntN(101)) + "%"
	case 1:
		return strconv.Itoa(s.random.IntN(4))
	}
	return strconv.Itoa(s.random.IntN(40))
}

// resolve returns the number of clusters for an amount, computed independently of the package.
func resolve(from intstr.IntOrString, total int) int {
	value := from.String()
	if value[len(value)-1] != '%' {
		number, _ := strconv.Atoi(value)
		return number
	}
	percent, _ := strconv.Atoi(value[:len(value)-1])
	number := 0
	for number*100 < percent*total {
		number++
	}
	return number
}

func (s *simulation) kind() clusterv1alpha1.RolloutType { return s.from.Kind() }

// unit is a group, or the sequence of Progressive: its clusters share one set of limits.
type unit struct {
	mandatory bool
	clusters  []string
}

func (s *simulation) units() []unit {
	var first, others []unit
	for _, group := range s.groups {
		if s.mandatory[group.Index] {
			first = append(first, unit{mandatory: true, clusters: group.Clusters})
		} else {
			others = append(others, unit{clusters: group.Clusters})
		}
	}
	if s.kind() == clusterv1alpha1.Progressive {
		sequence := unit{}
		for _, other := range others {
			sequence.clusters = append(sequence.clusters, other.clusters...)
		}
		others = []unit{sequence}
	}
	return append(first, others...)
}

func (s *simulation) slots(sequence []string) int {
	slots := resolve(s.from.Progressive.MaxConcurrency, len(sequence))
	if slots == 0 {
		slots = len(sequence)
	}
	return slots
}

// tolerated returns how many clusters of a unit may fail.
func (s *simulation) tolerated(u unit) int {
	switch {
	case u.mandatory:
		return 0
	case s.kind() == clusterv1alpha1.Progressive:
		return resolve(s.options.MaxFailures, len(s.clusters))
	}
	return resolve(s.options.MaxFailures, len(u.clusters))
}

// The functions below consider clusters that are present. Others have their own tests.

func (s *simulation) overdue(c rollout.Cluster) bool {
	since := c.Since
	if c.Status == rollout.Progressing && c.PresenceSince.After(since) {
		since = c.PresenceSince
	}
	return s.deadline > 0 && s.now.Sub(since) >= s.deadline
}

func (s *simulation) hasFailed(name string) bool {
	c := s.clusters[name]
	return c.Status == rollout.Failed || c.Status == rollout.TimeOut ||
		c.Status == rollout.Progressing && !c.Away && s.overdue(c)
}

// inProgress reports whether a cluster is progressing or within minSuccessTime.
func (s *simulation) inProgress(name string) bool {
	c := s.clusters[name]
	return c.Status == rollout.Progressing && !c.Away && !s.overdue(c) ||
		c.Status == rollout.Succeeded && s.now.Sub(c.Since) < s.options.MinSuccessTime.Duration
}

func (s *simulation) holdsSlot(name string) bool {
	c := s.clusters[name]
	return s.inProgress(name) || c.Status == rollout.Failed && !s.overdue(c)
}

func (s *simulation) decide() rollout.Decision { return s.strategy.Decide(s.groups, s.clusters, s.now) }

// apply gives the template to the clusters that the decision starts.
func (s *simulation) apply(decision rollout.Decision) {
	for _, name := range decision.Start {
		c := s.clusters[name]
		c.Status, c.Since = rollout.Progressing, s.now
		s.clusters[name] = c
	}
}

// names returns the sorted names of the clusters that match.
func (s *simulation) names(matches func(rollout.Cluster) bool) []string {
	var found []string
	for name, c := range s.clusters {
		if matches(c) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func (s *simulation) set(name string, status rollout.Status) {
	c := s.clusters[name]
	c.Status, c.Since = status, s.now
	s.clusters[name] = c
}

func (s *simulation) setAway(name string, away bool) {
	c := s.clusters[name]
	c.Away, c.PresenceSince = away, s.now
	s.clusters[name] = c
}

// scramble gives every cluster a random status, with times before now.
func (s *simulation) scramble(away bool) {
	ago := func() time.Time { return s.now.Add(-time.Duration(s.random.IntN(30)) * time.Minute) }
	for _, name := range s.names(func(rollout.Cluster) bool { return true }) {
		c := rollout.Cluster{Status: rollout.Status(s.random.IntN(6)), Since: ago()}
		if s.random.IntN(3) == 0 {
			c.Status = rollout.ToApply
		}
		if away && s.random.IntN(3) == 0 {
			c.Away, c.PresenceSince = true, ago()
		}
		s.clusters[name] = c
	}
}
