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
	"github.com/workwire/workwire/pkg/hub/rollout"
)

// world is a placement in the middle of a rollout, made from a seed.
type world struct {
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

// newWorld makes up a strategy, groups and clusters, none of which has the template yet.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{
		random:    rand.New(rand.NewPCG(seed, 7)),
		mandatory: map[int]bool{}, clusters: map[string]rollout.Cluster{}, now: now,
	}
	w.makeGroups()
	w.options = config(time.Duration(w.random.IntN(3))*5*time.Minute, "", w.amount())
	if w.random.IntN(2) == 0 {
		w.deadline = time.Duration(1+w.random.IntN(20)) * time.Minute
		w.options.ProgressDeadline = w.deadline.String()
	}
	switch w.random.IntN(5) {
	case 0:
		w.from = clusterv1alpha1.RolloutStrategy{All: &clusterv1alpha1.RolloutAll{RolloutConfig: w.options}}
	case 1, 2:
		w.from = progressive(w.amount(), w.options)
		w.from.Progressive.MandatoryDecisionGroups.MandatoryDecisionGroups = w.makeMandatory()
	default:
		w.from = perGroup(w.options)
		w.from.ProgressivePerGroup.MandatoryDecisionGroups.MandatoryDecisionGroups = w.makeMandatory()
	}
	strategy, err := rollout.Parse(&w.from)
	if err != nil {
		t.Fatal(err)
	}
	w.strategy = strategy
	return w
}

func (w *world) makeGroups() {
	clusters := w.random.IntN(30)
	for index := range 1 + w.random.IntN(5) {
		name := ""
		if w.random.IntN(2) == 0 {
			name = string(rune('p' + w.random.IntN(3))) // often the same
		}
		w.groups = append(w.groups, rollout.Group{Index: 3 * index, Name: name})
	}
	for _, i := range w.random.Perm(clusters) {
		group := &w.groups[w.random.IntN(len(w.groups))]
		group.Clusters = append(group.Clusters, fmt.Sprintf("c%02d", i))
	}
	for _, group := range w.groups {
		for _, name := range group.Clusters {
			w.clusters[name] = rollout.Cluster{}
		}
	}
}

func (w *world) makeMandatory() []clusterv1alpha1.MandatoryDecisionGroup {
	var named []clusterv1alpha1.MandatoryDecisionGroup
	for range w.random.IntN(3) {
		group := w.groups[w.random.IntN(len(w.groups))]
		if group.Name == "" {
			named = append(named, clusterv1alpha1.MandatoryDecisionGroup{GroupIndex: int32(group.Index)})
			w.mandatory[group.Index] = true
			continue
		}
		named = append(named, clusterv1alpha1.MandatoryDecisionGroup{GroupName: group.Name})
		for _, other := range w.groups {
			if other.Name == group.Name {
				w.mandatory[other.Index] = true
			}
		}
	}
	return named
}

func (w *world) amount() string {
	switch w.random.IntN(3) {
	case 0:
		return strconv.Itoa(w.random.IntN(101)) + "%"
	case 1:
		return strconv.Itoa(w.random.IntN(4))
	}
	return strconv.Itoa(w.random.IntN(40))
}

// of is what an amount means, worked out with real numbers.
func of(from intstr.IntOrString, total int) int {
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

func (w *world) kind() clusterv1alpha1.RolloutType { return w.from.Kind() }

// domain is what is rolled out to as one: a group, or the row of Progressive.
type domain struct {
	mandatory bool
	clusters  []string
}

func (w *world) domains() []domain {
	var first, others []domain
	for _, group := range w.groups {
		if w.mandatory[group.Index] {
			first = append(first, domain{mandatory: true, clusters: group.Clusters})
		} else {
			others = append(others, domain{clusters: group.Clusters})
		}
	}
	if w.kind() == clusterv1alpha1.Progressive {
		row := domain{}
		for _, other := range others {
			row.clusters = append(row.clusters, other.clusters...)
		}
		others = []domain{row}
	}
	return append(first, others...)
}

func (w *world) places(row []string) int {
	places := of(w.from.Progressive.MaxConcurrency, len(row))
	if places == 0 {
		places = len(row)
	}
	return places
}

// tolerated is how many clusters of a domain may fail.
func (w *world) tolerated(d domain) int {
	switch {
	case d.mandatory:
		return 0
	case w.kind() == clusterv1alpha1.Progressive:
		return of(w.options.MaxFailures, len(w.clusters))
	}
	return of(w.options.MaxFailures, len(d.clusters))
}

// What follows looks at clusters that are present: those that are away have tests of their own.

func (w *world) overdue(c rollout.Cluster) bool {
	since := c.Since
	if c.Status == rollout.Progressing && c.PresenceSince.After(since) {
		since = c.PresenceSince
	}
	return w.deadline > 0 && w.now.Sub(since) >= w.deadline
}

func (w *world) failing(name string) bool {
	c := w.clusters[name]
	return c.Status == rollout.Failed || c.Status == rollout.TimeOut ||
		c.Status == rollout.Progressing && !c.Away && w.overdue(c)
}

// settling tells that a cluster is on its way, or has not succeeded for long enough.
func (w *world) settling(name string) bool {
	c := w.clusters[name]
	return c.Status == rollout.Progressing && !c.Away && !w.overdue(c) ||
		c.Status == rollout.Succeeded && w.now.Sub(c.Since) < w.options.MinSuccessTime.Duration
}

func (w *world) holdsPlace(name string) bool {
	c := w.clusters[name]
	return w.settling(name) || c.Status == rollout.Failed && !w.overdue(c)
}

func (w *world) decide() rollout.Decision { return w.strategy.Decide(w.groups, w.clusters, w.now) }

// begin does what the decision says.
func (w *world) begin(decision rollout.Decision) {
	for _, name := range decision.Begin {
		c := w.clusters[name]
		c.Status, c.Since = rollout.Progressing, w.now
		w.clusters[name] = c
	}
}

// names of all clusters of which it holds, sorted.
func (w *world) names(holds func(rollout.Cluster) bool) []string {
	var found []string
	for name, c := range w.clusters {
		if holds(c) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

func (w *world) set(name string, status rollout.Status) {
	c := w.clusters[name]
	c.Status, c.Since = status, w.now
	w.clusters[name] = c
}

func (w *world) setAway(name string, away bool) {
	c := w.clusters[name]
	c.Away, c.PresenceSince = away, w.now
	w.clusters[name] = c
}

// scramble gives every cluster a status at random, with times around now.
func (w *world) scramble(away bool) {
	ago := func() time.Time { return w.now.Add(-time.Duration(w.random.IntN(30)) * time.Minute) }
	for _, name := range w.names(func(rollout.Cluster) bool { return true }) {
		c := rollout.Cluster{Status: rollout.Status(w.random.IntN(6)), Since: ago()}
		if w.random.IntN(3) == 0 {
			c.Status = rollout.ToApply
		}
		if away && w.random.IntN(3) == 0 {
			c.Away, c.PresenceSince = true, ago()
		}
		w.clusters[name] = c
	}
}
