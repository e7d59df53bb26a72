package rollout_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
)

// TestDocumentedExample rolls out the documented replica set with the cluster counts of the
// documentation, and passes through the intermediate states 20 of 30 and 15 of 20 shown there.
func TestDocumentedExample(t *testing.T) {
	text, err := os.ReadFile("../../../../examples/replicaset/mwrset-cronjob.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set workv1alpha1.ManifestWorkReplicaSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	clusters := func(prefix string, n int) (names []string) {
		for i := range n {
			names = append(names, fmt.Sprintf("%s%02d", prefix, i))
		}
		return names
	}
	fives := make([]rollout.Group, 4)
	for i := range fives {
		fives[i] = rollout.Group{Index: i, Clusters: clusters(fmt.Sprintf("g%d-", i), 5)}
	}
	tests := map[string]struct {
		groups []rollout.Group
		want   []string // progress at each moment at which clusters start
	}{
		"placement-rollout-all": {
			[]rollout.Group{{Clusters: clusters("c", 10)}}, []string{"10 / 10 after 0s"},
		},
		"placement-rollout-progressive": {
			[]rollout.Group{
				{Index: 0, Name: "prod-canary-west", Clusters: clusters("w", 10)},
				{Index: 1, Name: "prod-canary-east", Clusters: clusters("e", 10)},
				{Index: 2, Clusters: clusters("c", 10)},
			}, []string{"10 / 30 after 0s", "20 / 30 after 5m0s", "30 / 30 after 10m0s"},
		},
		"placement-rollout-progressive-per-group": {
			fives, []string{"5 / 20 after 0s", "10 / 20 after 0s", "15 / 20 after 0s", "20 / 20 after 0s"},
		},
	}
	for _, ref := range set.Spec.PlacementRefs {
		t.Run(ref.Name, func(t *testing.T) {
			test, ok := tests[ref.Name]
			if !ok {
				t.Fatal("not in this test")
			}
			if got := rollOut(t, ref.RolloutStrategy, test.groups); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	if len(set.Spec.PlacementRefs) != len(tests) {
		t.Errorf("%d placements, %d tested", len(set.Spec.PlacementRefs), len(tests))
	}
}

// rollOut lets every started cluster succeed at once, and advances the time to RequeueAt.
func rollOut(t *testing.T, from clusterv1alpha1.RolloutStrategy, groups []rollout.Group) (steps []string) {
	t.Helper()
	strategy, err := rollout.Parse(&from)
	if err != nil {
		t.Fatal(err)
	}
	clusters, at := map[string]rollout.Cluster{}, now
	for {
		d := strategy.Decide(groups, clusters, at)
		switch {
		case d.Done:
			return steps
		case len(d.Start) > 0:
			steps = append(steps, fmt.Sprintf("%d / %d after %s", len(d.Rollout), len(d.Rollout)+len(d.Waiting), at.Sub(now)))
			for _, name := range d.Start {
				clusters[name] = rollout.Cluster{Status: rollout.Succeeded, Since: at}
			}
		case d.RequeueAt.After(at):
			at = d.RequeueAt
		default:
			t.Fatalf("stuck after %q: %s", steps, format(d))
		}
	}
}
