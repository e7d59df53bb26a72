package placement

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// BenchmarkSchedule schedules and plans 100 placements of 5,000 clusters each.
func BenchmarkSchedule(b *testing.B) {
	var clusters []*cluster
	for i := range 5000 {
		clusters = append(clusters, accepted(fmt.Sprintf("c%04d", i),
			labelled("group", fmt.Sprint(i%4), "region", fmt.Sprint(i%10), "tier", "gold"), claiming("id.k8s.io", fmt.Sprint(i))))
	}
	p := placing(predicates(byLabels("region", "1"), byLabels("group", "1"), byLabels("tier", "gold")),
		naming("one", "1"), naming("two", "2"), perGroup(intstr.FromInt32(250)))
	r := mustRules(b, p)
	objects := stored{}
	for _, w := range planDecisions(p, schedule(r, clusters, nil, noon, unused).groups, nil, never).first {
		objects[w.object.Name] = w.object
	}
	mine := objects.all()
	b.ReportAllocs()
	for b.Loop() {
		for range 100 {
			o := schedule(r, clusters, readGroups(p.Name, mine), noon, unused)
			if todo := planDecisions(p, o.groups, mine, never); !todo.empty() || o.chosen != 5000 {
				b.Fatalf("%d chosen, %d to write", o.chosen, len(todo.first))
			}
		}
	}
}

// BenchmarkDecision makes one decision among 10,000 clusters: the first one, and another one after one of them has changed.
func BenchmarkDecision(b *testing.B) {
	var clusters []*cluster
	for i := range 10_000 {
		name := fmt.Sprintf("c%05d", i)
		clusters = append(clusters, withScores(accepted(name, labelled("region", fmt.Sprint(i%20), "version", fmt.Sprintf("1.%d.0", 25+i%12)), claiming("zone", fmt.Sprint(i%60)),
			allocating(fmt.Sprint(1+i%64), "16Gi")), scored(name, "usage", 0, "cpu", i%200-100)))
	}
	hard := clusterv1beta1.DoNotSchedule
	for _, c := range []struct {
		name   string
		change []func(*clusterv1beta1.Placement)
	}{
		{"labels", []func(*clusterv1beta1.Placement){predicates(byLabels("region", "1"), byLabels("region", "2"))}},
		{"cel", []func(*clusterv1beta1.Placement){predicates(byExpressions(
			`semver(managedCluster.metadata.labels["version"]).isGreaterThan(semver("1.28.0"))`,
			`managedCluster.scores("usage").filter(s, s.name == "cpu").all(s, s.value > -50)`))}},
		{"scores", []func(*clusterv1beta1.Placement){number(5000), prioritizing(additive, addOn("usage", "cpu", 2), builtIn("ResourceAllocatableCPU", 1))}},
		{"spread", []func(*clusterv1beta1.Placement){number(5000), spreading(term("region", clusterv1beta1.TopologyKeyTypeLabel, 1, hard), term("zone", clusterv1beta1.TopologyKeyTypeClaim, 1, ""))}},
		{"spread-each-its-own", []func(*clusterv1beta1.Placement){number(5000), spreading(term("name", clusterv1beta1.TopologyKeyTypeLabel, 1, hard))}},
	} {
		if c.name == "spread-each-its-own" {
			clusters = slices.Clone(clusters)
			for i, of := range clusters {
				clusters[i] = accepted(of.name, labelled("name", of.name))
			}
		}
		b.Run(c.name+"/first", func(b *testing.B) {
			for b.Loop() {
				schedule(mustRules(b, placing(c.change...)), clusters, nil, noon, unused)
			}
		})
		b.Run(c.name+"/one-changed", func(b *testing.B) {
			r := mustRules(b, placing(c.change...))
			before := schedule(r, clusters, nil, noon, unused).groups
			changing := slices.Clone(clusters)
			for b.Loop() {
				changing[7] = withScores(changing[7])
				schedule(r, changing, before, noon, unused)
			}
		})
	}
}
