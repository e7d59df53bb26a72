package rollout_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

func decisionOf(name string, labels map[string]string, clusters ...string) *clusterv1beta1.PlacementDecision {
	decision := &clusterv1beta1.PlacementDecision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{}},
	}
	for key, value := range labels {
		decision.Labels["cluster.open-cluster-management.io/decision-group-"+key] = value
	}
	for _, cluster := range clusters {
		decision.Status.Decisions = append(decision.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster})
	}
	return decision
}

func TestGroupsOf(t *testing.T) {
	placement := &clusterv1beta1.Placement{}
	placement.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{
		{GroupName: "west"}, {GroupName: "nowhere"},
	}
	got, err := rollout.GroupsOf(placement, []*clusterv1beta1.PlacementDecision{
		decisionOf("p-3", map[string]string{"index": "10", "name": ""}, "e"),
		decisionOf("p-1", map[string]string{"index": "0", "name": "west"}, "a"),
		decisionOf("p-4", map[string]string{"index": "2", "name": ""}, "d"),
		decisionOf("p-2", map[string]string{"index": "0", "name": "west"}, "c", "b"),
	})
	want := []rollout.Group{
		{Index: 0, Name: "west", Clusters: []string{"a", "c", "b"}}, {Index: 2, Clusters: []string{"d"}},
		{Index: 10, Clusters: []string{"e"}}, {Index: 11, Name: "nowhere"},
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

func TestGroupsOfDecisionsWithoutGroups(t *testing.T) {
	got, err := rollout.GroupsOf(nil, []*clusterv1beta1.PlacementDecision{decisionOf("p-1", nil, "b"), decisionOf("p-2", nil, "a")})
	if diff := cmp.Diff([]rollout.Group{{Clusters: []string{"b", "a"}}}, got); err != nil || diff != "" {
		t.Errorf("groups (%v) (-want +got):\n%s", err, diff)
	}
	if got, err := rollout.GroupsOf(nil, nil); err != nil || len(got) != 0 {
		t.Errorf("no decisions: %v, %v", got, err)
	}
}

func TestGroupsOfRejectsBadIndexes(t *testing.T) {
	for _, index := range []string{"", "-1", "one", "4294967296", "0x1"} {
		_, err := rollout.GroupsOf(nil, []*clusterv1beta1.PlacementDecision{decisionOf("p-1", map[string]string{"index": index}, "a")})
		if err == nil || !strings.Contains(err.Error(), "PlacementDecision ns/p-1") {
			t.Errorf("index %q: %v", index, err)
		}
	}
}

// FuzzGroupsOf checks that any label text yields an error, or ordered groups with all clusters.
func FuzzGroupsOf(f *testing.F) {
	f.Add("0", "west", "1", "")
	f.Add("3", "a", "3", "b")
	f.Add("-1", "", "007", "x")
	f.Fuzz(func(t *testing.T, indexA, nameA, indexB, nameB string) {
		groups, err := rollout.GroupsOf(nil, []*clusterv1beta1.PlacementDecision{
			decisionOf("p-1", map[string]string{"index": indexA, "name": nameA}, "a"),
			decisionOf("p-2", map[string]string{"index": indexB, "name": nameB}, "b"),
		})
		if err != nil {
			return
		}
		clusters := 0
		for i, group := range groups {
			clusters += len(group.Clusters)
			if group.Index < 0 || i > 0 && groups[i-1].Index >= group.Index {
				t.Errorf("order of %+v", groups)
			}
		}
		if clusters != 2 {
			t.Errorf("%d clusters in %+v", clusters, groups)
		}
	})
}
