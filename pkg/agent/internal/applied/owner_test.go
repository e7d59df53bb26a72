package applied

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// TestOwner: of two agents with one id, the one whose AppliedManifestWork is the oldest goes on.
func TestOwner(t *testing.T) {
	of := func(agent, cluster string, minute int) *workv1.AppliedManifestWork {
		amw := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{Name: cluster + "-web", CreationTimestamp: metav1.NewTime(time.Unix(int64(60*minute), 0))}}
		amw.Spec.AgentID = agent
		if cluster != "" {
			amw.Annotations = map[string]string{ClusterAnnotation: cluster}
		}
		return amw
	}
	for name, c := range map[string]struct {
		owner Owner
		all   []*workv1.AppliedManifestWork
		owns  string // of all, in their order
		rival string
	}{
		"nothing":                    {Owner{AgentID: "a", Cluster: "c1"}, nil, "", ""},
		"its own, and older agents'": {Owner{AgentID: "a", Cluster: "c1"}, []*workv1.AppliedManifestWork{of("a", "c1", 2), of("a", "", 1)}, "yy", ""},
		"another agent's":            {Owner{AgentID: "a", Cluster: "c1"}, []*workv1.AppliedManifestWork{of("b", "c2", 1)}, "n", ""},
		"the other was first":        {Owner{AgentID: "a", Cluster: "c1"}, []*workv1.AppliedManifestWork{of("a", "c1", 2), of("a", "c2", 1)}, "yn", "c2"},
		"it was first":               {Owner{AgentID: "a", Cluster: "c1"}, []*workv1.AppliedManifestWork{of("a", "c1", 1), of("a", "c2", 2)}, "yn", ""},
		"both at once":               {Owner{AgentID: "a", Cluster: "c2"}, []*workv1.AppliedManifestWork{of("a", "c1", 1), of("a", "c2", 1)}, "ny", "c1"},
		"it takes over":              {Owner{AgentID: "a", Cluster: "c1", TakesOver: "c2"}, []*workv1.AppliedManifestWork{of("a", "c2", 1), of("a", "c3", 2)}, "yn", ""},
	} {
		owns := ""
		for _, amw := range c.all {
			owns += map[bool]string{true: "y", false: "n"}[c.owner.Owns(amw)]
		}
		if err := c.owner.Check(slices.Values(c.all)); owns != c.owns || (err != nil) != (c.rival != "") || err != nil && !strings.Contains(err.Error(), "--cluster-name="+c.rival) {
			t.Errorf("%s: owns %s, %v", name, owns, err)
		}
	}
}
