package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// Clusters that were away before the rollout do not affect the decision for the others.
func TestPropertyAwayBlocksNobody(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		// Percentages include clusters that are away, and mandatory groups need one success.
		if s.from.Progressive != nil {
			s.from = progressive(fmt.Sprint(1+s.random.IntN(5)), s.options)
			s.from.Progressive.MaxFailures = intstr.FromInt32(2)
		}
		if s.from.ProgressivePerGroup != nil {
			s.from.ProgressivePerGroup.MaxFailures = intstr.FromInt32(2)
			s.from.ProgressivePerGroup.MandatoryDecisionGroups = clusterv1alpha1.MandatoryDecisionGroups{}
		}
		strategy, err := rollout.Parse(&s.from)
		if err != nil {
			t.Fatal(err)
		}
		s.scramble(false)
		var without []rollout.Group
		for _, group := range s.groups {
			rest := rollout.Group{Index: group.Index, Name: group.Name}
			for _, name := range group.Clusters {
				c := s.clusters[name]
				if s.random.IntN(3) == 0 && (c.Status == rollout.ToApply || c.Status == rollout.Progressing) {
					c.Away, c.PresenceSince = true, c.Since.Add(-time.Hour)
					s.clusters[name] = c
				} else {
					rest.Clusters = append(rest.Clusters, name)
				}
			}
			without = append(without, rest)
		}
		want := strategy.Decide(without, s.clusters, s.now)
		got := strategy.Decide(s.groups, s.clusters, s.now)
		present := func(names []string) []string {
			return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return s.clusters[name].Away })
		}
		for _, list := range []struct {
			name      string
			want, got []string
		}{
			{"start", want.Start, present(got.Start)}, {"waiting", want.Waiting, present(got.Waiting)},
			{"failed", want.Failed, got.Failed}, {"timed out", want.TimedOut, got.TimedOut},
		} {
			if !slices.Equal(list.want, list.got) {
				t.Errorf("%s: %v, without those away %v", list.name, list.got, list.want)
			}
		}
	})
}

// At most maxConcurrency clusters that are away receive a template before any of them has answered.
func TestPropertyBudgetOfAwayClusters(t *testing.T) {
	tried := 0
	forSeeds(t, func(t *testing.T, s *simulation) {
		if s.kind() != clusterv1alpha1.Progressive {
			return
		}
		for _, name := range s.names(func(rollout.Cluster) bool { return true }) {
			if s.random.IntN(2) == 0 {
				s.setAway(name, true)
			}
		}
		for range 20 {
			d := s.decide()
			s.apply(d)
			for _, unit := range s.units() {
				if unit.mandatory {
					continue
				}
				holders := 0
				for _, name := range unit.clusters {
					c := s.clusters[name]
					holders += count(c.Away && c.Status == rollout.Progressing)
				}
				tried += holders
				if slots := s.slots(unit.clusters); holders > slots {
					t.Errorf("%d that are away have the template, %d may", holders, slots)
				}
			}
			s.now = s.now.Add(time.Minute)
			for _, name := range s.names(func(c rollout.Cluster) bool { return !c.Away && c.Status == rollout.Progressing }) {
				s.set(name, rollout.Succeeded)
			}
		}
	})
	if tried == 0 {
		t.Error("no cluster that is away received the template")
	}
}

// A template that disconnects every cluster is stopped.
func TestPropertyDeadlyTemplate(t *testing.T) {
	forSeeds(t, func(t *testing.T, s *simulation) {
		if s.kind() == clusterv1alpha1.All || s.deadline > 0 { // with a deadline, maxFailures limits it
			return
		}
		for range 40 {
			d := s.decide()
			s.apply(d)
			s.now = s.now.Add(time.Second)
			for _, name := range d.Start {
				s.setAway(name, true)
			}
		}
		lost := len(s.names(func(c rollout.Cluster) bool { return c.Away }))
		units := slices.DeleteFunc(s.units(), func(u unit) bool { return len(u.clusters) == 0 })
		if len(units) == 0 {
			return
		}
		limit := len(units[0].clusters)
		if s.kind() == clusterv1alpha1.Progressive && !units[0].mandatory {
			limit = min(limit, 2*s.slots(units[0].clusters))
		}
		if lost != limit {
			t.Errorf("%d clusters lost, want %d", lost, limit)
		}
	})
}

func manyClusters(n int) ([]rollout.Group, map[string]rollout.Cluster) {
	groups := make([]rollout.Group, 1+n/100)
	clusters := map[string]rollout.Cluster{}
	for i := range n {
		name := fmt.Sprintf("cluster%07d", (i*7919)%n)
		groups[i%len(groups)].Clusters = append(groups[i%len(groups)].Clusters, name)
		clusters[name] = rollout.Cluster{
			Status: rollout.Status(i % 4), Since: now.Add(-time.Duration(i) * time.Second), Away: i%5 == 0,
			PresenceSince: now.Add(-time.Duration(i%1000) * time.Second),
		}
	}
	for i := range groups {
		groups[i].Index = i
	}
	return groups, clusters
}
