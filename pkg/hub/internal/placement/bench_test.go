package placement

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
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
	for _, w := range planDecisions(p, schedule(r, clusters, nil, noon).groups, nil, never).first {
		objects[w.object.Name] = w.object
	}
	mine := objects.all()
	b.ReportAllocs()
	for b.Loop() {
		for range 100 {
			o := schedule(r, clusters, readGroups(p.Name, mine), noon)
			if todo := planDecisions(p, o.groups, mine, never); !todo.empty() || o.chosen != 5000 {
				b.Fatalf("%d chosen, %d to write", o.chosen, len(todo.first))
			}
		}
	}
}
