package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
)

// TestKeepsDecisions: decisions stay without a bound set only if a hub without cluster sets made them.
func TestKeepsDecisions(t *testing.T) {
	const satisfied, bound = clusterv1beta1.PlacementConditionSatisfied, clusterv1beta1.PlacementConditionBound
	shops := clustersets.ReachOf(&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: "shops"}})
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		reach      clustersets.Reach
		members    bool
		none       bool // there are no decisions
		want       bool
	}{
		"of an old hub":                      {conditions: []metav1.Condition{{Type: satisfied}}, want: true},
		"of an old hub, an empty set":        {conditions: []metav1.Condition{{Type: satisfied}}, reach: shops, want: true},
		"of an old hub, a set with clusters": {conditions: []metav1.Condition{{Type: satisfied}}, reach: shops, members: true},
		"of an old hub, none":                {conditions: []metav1.Condition{{Type: satisfied}}, none: true},
		"kept before":                        {conditions: []metav1.Condition{{Type: satisfied}, {Type: bound, Reason: "DecisionsKept"}}, want: true},
		"from sets":                          {conditions: []metav1.Condition{{Type: satisfied}, {Type: bound, Reason: "ClusterSetsBound"}}},
		"from no set":                        {conditions: []metav1.Condition{{Type: satisfied}, {Type: bound, Reason: "NoIntersection"}}},
		"forged, of a new placement":         {},
		"bindings are not required":          {conditions: []metav1.Condition{{Type: satisfied}}, reach: clustersets.Everything()},
	} {
		p := placing()
		p.Status.Conditions = c.conditions
		r, err := newRules(p, c.reach, compiling(t))
		if err != nil {
			t.Fatal(err)
		}
		before := []group{{clusters: []string{"a"}}}
		if c.none {
			before = nil
		}
		if got := keepsDecisions(p, r, &result{members: c.members}, before); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
