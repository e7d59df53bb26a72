package rollout_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/rollout"
)

// A cluster that was away before the rollout began is, to those that are there, as if it were not there at all.
func TestPropertyAwayBlocksNobody(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		// Percentages are of all clusters, also those away; mandatory groups want one success.
		if w.from.Progressive != nil {
			w.from = progressive(fmt.Sprint(1+w.random.IntN(5)), w.options)
			w.from.Progressive.MaxFailures = intstr.FromInt32(2)
		}
		if w.from.ProgressivePerGroup != nil {
			w.from.ProgressivePerGroup.MaxFailures = intstr.FromInt32(2)
			w.from.ProgressivePerGroup.MandatoryDecisionGroups = clusterv1alpha1.MandatoryDecisionGroups{}
		}
		strategy, err := rollout.Parse(&w.from)
		if err != nil {
			t.Fatal(err)
		}
		w.scramble(false)
		var without []rollout.Group
		for _, group := range w.groups {
			rest := rollout.Group{Index: group.Index, Name: group.Name}
			for _, name := range group.Clusters {
				c := w.clusters[name]
				if w.random.IntN(3) == 0 && (c.Status == rollout.ToApply || c.Status == rollout.Progressing) {
					c.Away, c.PresenceSince = true, c.Since.Add(-time.Hour)
					w.clusters[name] = c
				} else {
					rest.Clusters = append(rest.Clusters, name)
				}
			}
			without = append(without, rest)
		}
		want := strategy.Decide(without, w.clusters, w.now)
		got := strategy.Decide(w.groups, w.clusters, w.now)
		present := func(names []string) []string {
			return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return w.clusters[name].Away })
		}
		for _, list := range []struct {
			name      string
			want, got []string
		}{
			{"begin", want.Begin, present(got.Begin)}, {"waiting", want.Waiting, present(got.Waiting)},
			{"failed", want.Failed, got.Failed}, {"timed out", want.TimedOut, got.TimedOut},
		} {
			if !slices.Equal(list.want, list.got) {
				t.Errorf("%s: %v, without those away %v", list.name, list.got, list.want)
			}
		}
	})
}

// However many are away, only so many of them meet a template that none of them has tried.
func TestPropertyBudgetOfThoseAway(t *testing.T) {
	tried := 0
	forSeeds(t, func(t *testing.T, w *world) {
		if w.kind() != clusterv1alpha1.Progressive {
			return
		}
		for _, name := range w.names(func(rollout.Cluster) bool { return true }) {
			if w.random.IntN(2) == 0 {
				w.setAway(name, true)
			}
		}
		for range 20 {
			d := w.decide()
			w.begin(d)
			for _, domain := range w.domains() {
				if domain.mandatory {
					continue
				}
				holders := 0
				for _, name := range domain.clusters {
					c := w.clusters[name]
					holders += count(c.Away && c.Status == rollout.Progressing)
				}
				tried += holders
				if places := w.places(domain.clusters); holders > places {
					t.Errorf("%d that are away have the template, %d may", holders, places)
				}
			}
			w.now = w.now.Add(time.Minute)
			for _, name := range w.names(func(c rollout.Cluster) bool { return !c.Away && c.Status == rollout.Progressing }) {
				w.set(name, rollout.Succeeded)
			}
		}
	})
	if tried == 0 {
		t.Error("no cluster that is away ever got the template")
	}
}

// A template that cuts off every cluster it reaches is stopped.
func TestPropertyDeadlyTemplate(t *testing.T) {
	forSeeds(t, func(t *testing.T, w *world) {
		if w.kind() == clusterv1alpha1.All || w.deadline > 0 { // with a deadline, maxFailures limits it
			return
		}
		for range 40 {
			d := w.decide()
			w.begin(d)
			w.now = w.now.Add(time.Second)
			for _, name := range d.Begin {
				w.setAway(name, true)
			}
		}
		lost := len(w.names(func(c rollout.Cluster) bool { return c.Away }))
		domains := slices.DeleteFunc(w.domains(), func(d domain) bool { return len(d.clusters) == 0 })
		if len(domains) == 0 {
			return
		}
		limit := len(domains[0].clusters)
		if w.kind() == clusterv1alpha1.Progressive && !domains[0].mandatory {
			limit = min(limit, 2*w.places(domains[0].clusters))
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
