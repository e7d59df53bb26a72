package replicaset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/examples"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/test/kit"
)

// printed is the status of the example in the documentation of ManifestWorkReplicaSet.
const printed = `PlacementVerified True AsExpected
PlacementRolledOut False Progressing
ManifestworkApplied True AsExpected
placement-rollout-all: 1 (10 / 10 clusters applied): total 10 applied 10 available 10 progressing 0 degraded 0
placement-rollout-progressive: 3 (20 / 30 clusters applied): total 20 applied 20 available 20 progressing 0 degraded 0
placement-rollout-progressive-per-group: 4 (15 / 20 clusters applied): total 15 applied 15 available 15 progressing 0 degraded 0
total 45 applied 45 available 45 progressing 0 degraded 0`

// TestExample rolls out the example to 30 clusters and passes through the printed status: two of
// three groups of Progressive succeeded, the second within minSuccessTime, and three of four groups
// of ProgressivePerGroup.
func TestExample(t *testing.T) {
	e := newEnv(t, 30)
	e.namespace = "ocm-ns"
	namespaces := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Namespaces()
	if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) { // with -count
		t.Fatal(err)
	}
	r := e.start()

	group := func(from, to int) []string { return e.clusters[from:to] }
	e.writeExamplePlacement("placement-rollout-all", nil, group(0, 10))
	e.writeExamplePlacement("placement-rollout-progressive", []string{"prod-canary-west", "prod-canary-east", ""}, group(0, 10), group(10, 20), group(20, 30))
	e.writeExamplePlacement("placement-rollout-progressive-per-group", nil, group(10, 15), group(15, 20), group(20, 25), group(25, 30))
	set := &workv1alpha1.ManifestWorkReplicaSet{}
	decodeExample(t, "mwrset-cronjob", set)
	e.createSet(set)

	watch, err := e.client.WorkV1alpha1().ManifestWorkReplicaSets(e.namespace).Watch(t.Context(), metav1.ListOptions{})
	kit.NoError(t, err)
	defer watch.Stop()

	e.awaitCounts(set.Name, 10, 10, 5)
	e.reportApplied(set.Name, e.clusters)
	e.awaitCounts(set.Name, 10, 10, 10)
	e.advance(5 * time.Minute) // minSuccessTime of the first group
	r.requeue(e, set.Name)
	e.awaitCounts(set.Name, 10, 20, 10)
	e.reportApplied(set.Name, e.clusters)
	e.awaitCounts(set.Name, 10, 20, 15)
	e.reportApplied(set.Name, e.clusters)
	e.awaitCounts(set.Name, 10, 20, 20)

	// A reconcile writes the status before the works, so the one that started the last group has
	// written the printed status.
	timeout := time.After(kit.Patience)
	var seen []string
	for !slices.Contains(seen, printed) {
		select {
		case event := <-watch.ResultChan():
			if changed, ok := event.Object.(*workv1alpha1.ManifestWorkReplicaSet); ok && !slices.Contains(seen, statusText(&changed.Status)) {
				seen = append(seen, statusText(&changed.Status))
			}
		case <-timeout:
			t.Fatalf("these were seen:\n%s\nwant\n%s", strings.Join(seen, "\n\n"), printed)
		}
	}

	e.advance(5 * time.Minute)
	r.requeue(e, set.Name)
	e.awaitCounts(set.Name, 10, 30, 20)
	e.reportApplied(set.Name, e.clusters)
	e.awaitStatus(set.Name, strings.NewReplacer(
		"RolledOut False Progressing", "RolledOut True Complete",
		"(20 / 30 clusters applied): total 20 applied 20 available 20", "(30 / 30 clusters applied): total 30 applied 30 available 30",
		"(15 / 20 clusters applied): total 15 applied 15 available 15", "(20 / 20 clusters applied): total 20 applied 20 available 20",
		"total 45 applied 45 available 45", "total 60 applied 60 available 60").Replace(printed))
}

func decodeExample(t *testing.T, name string, into any) {
	t.Helper()
	text, err := examples.Files.ReadFile("replicaset/" + name + ".yaml")
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	kit.NoError(t, err)
}

// writeExamplePlacement writes a placement of the examples that selected these groups, the first of
// which may have names.
func (e *env) writeExamplePlacement(name string, names []string, groups ...[]string) {
	e.t.Helper()
	chosen, decisions := placementOf(name, groups...)
	placement := &clusterv1beta1.Placement{}
	decodeExample(e.t, name, placement)
	placement.Status = chosen.Status
	for i, group := range names {
		decisions[i].Labels[clusterv1beta1.DecisionGroupNameLabel] = group
	}
	e.storePlacement(placement, decisions)
}

// awaitCounts waits until the placements of the example have these numbers of works.
func (e *env) awaitCounts(set string, all, progressive, perGroup int) {
	e.t.Helper()
	want := map[string]int{
		"placement-rollout-all": all, "placement-rollout-progressive": progressive, "placement-rollout-progressive-per-group": perGroup,
	}
	kit.Eventually(e.t, fmt.Sprintf("the works are %v", want), func() error {
		got := map[string]int{}
		for _, work := range e.works(set) {
			got[work.Labels["work.open-cluster-management.io/placementname"]]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", got)
		}
		return nil
	})
}
