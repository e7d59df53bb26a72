package fleet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/kit"
)

// absence is a hub, simulated agents, and one set on the clusters of one placement.
type absence struct {
	*fleet
	agents   *agents
	clusters []wire.ClusterName
	requests kit.Requests
	registry *prometheus.Registry
	log      kit.Log
	name     string // of the namespace, the placement and the set, and the label of the clusters
	session  int
	absent   sync.Map // the clusters whose agents do not answer
}

// newAbsence starts a hub with a grace, and n clusters that have the work of the set.
func newAbsence(t *testing.T, name string, grace time.Duration, n int, change func(*clusterv1beta1.Placement)) *absence {
	t.Helper()
	a := &absence{fleet: newFleet(t, wire.SourceID(name)), registry: prometheus.NewRegistry(), name: name}
	a.hub(&a.requests, func(c *hub.Config) {
		c.AutoRegister, c.AutoAccept, c.UnreachableGrace, c.Registerer, c.Logger = true, true, grace, a.registry, a.log.Logger()
	})
	a.agents = a.fleet.agents(func(spec *wire.Spec) *workv1.ManifestWorkStatus {
		if _, absent := a.absent.Load(spec.Cluster); absent {
			return nil
		}
		return well(spec)
	})
	plane.CreateNamespace(t, name)
	a.bindAll(name)
	a.clusters = a.register(a.agents, name, n, func(int) string { return fmt.Sprintf(`{"fleet":%q}`, name) })
	placement := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	placement.Spec.Predicates = []clusterv1beta1.ClusterPredicate{{RequiredClusterSelector: clusterv1beta1.ClusterSelector{
		LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"fleet": name}},
	}}}
	if change != nil {
		change(placement)
	}
	if _, err := a.client.ClusterV1beta1().Placements(name).Create(t.Context(), placement, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	set := &workv1alpha1.ManifestWorkReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
	set.Spec.ManifestWorkTemplate = work("x", "x").Spec
	set.Spec.PlacementRefs = []workv1alpha1.LocalPlacementReference{{Name: name}}
	if _, err := a.client.WorkV1alpha1().ManifestWorkReplicaSets(name).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.client.WorkV1alpha1().ManifestWorkReplicaSets(name).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return a
}

// says has the agents of clusters stop, or start again.
func (a *absence) says(present bool, clusters ...wire.ClusterName) {
	a.Helper()
	if present {
		a.session++
	}
	for _, cluster := range clusters {
		if a.absent.Store(cluster, true); present {
			a.absent.Delete(cluster)
		}
		a.agents.publish(a.Context(), cluster, &wire.Presence{
			Agent: string(cluster) + "-agent", Cluster: cluster, Source: a.Source, Session: fmt.Sprint(a.session + 1), Present: present,
		})
	}
	a.eventually(fmt.Sprintf("%v are available: %v", clusters, present), func() error {
		for _, cluster := range clusters {
			if c := a.cluster(cluster); meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ManagedClusterConditionAvailable) != present {
				return fmt.Errorf("%s has %+v", cluster, c.Status.Conditions)
			}
		}
		return nil
	})
}

func (a *absence) cluster(name wire.ClusterName) *clusterv1.ManagedCluster {
	a.Helper()
	c, err := a.client.ClusterV1().ManagedClusters().Get(a.Context(), string(name), metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	return c
}

// tainted reports whether a cluster has the taint unreachable.
func (a *absence) tainted(name wire.ClusterName) bool {
	return slices.ContainsFunc(a.cluster(name).Spec.Taints, func(t clusterv1.Taint) bool { return t.Key == clusterv1.ManagedClusterTaintUnreachable })
}

// awaitTainted waits until a cluster has the taint, or does not.
func (a *absence) awaitTainted(want bool, name wire.ClusterName) {
	a.Helper()
	kit.True(a, fmt.Sprintf("%s is tainted: %v", name, want), func() bool { return a.tainted(name) == want })
}

// chosen returns the clusters in the decisions.
func (a *absence) chosen() (names []wire.ClusterName) {
	a.Helper()
	list, err := a.client.ClusterV1beta1().PlacementDecisions(a.name).List(a.Context(), metav1.ListOptions{})
	if err != nil {
		a.Fatal(err)
	}
	for _, decision := range list.Items {
		for _, d := range decision.Status.Decisions {
			names = append(names, wire.ClusterName(d.ClusterName))
		}
	}
	slices.Sort(names)
	return names
}

func (a *absence) awaitChosen(want ...wire.ClusterName) {
	a.Helper()
	a.eventually(fmt.Sprintf("chosen are %v", want), func() error {
		if got := a.chosen(); !slices.Equal(got, want) {
			return fmt.Errorf("chosen are %v", got)
		}
		return nil
	})
}

// uids returns the works of the set that are not being deleted, by cluster.
func (a *absence) uids() map[string]types.UID {
	a.Helper()
	uids := map[string]types.UID{}
	for _, work := range a.works(a.name + "." + a.name) {
		if work.DeletionTimestamp == nil {
			uids[work.Namespace] = work.UID
		}
	}
	return uids
}

// awaitWorks waits until these clusters have a work and have reported it, and returns the works.
func (a *absence) awaitWorks(clusters ...wire.ClusterName) map[string]types.UID {
	a.Helper()
	want := make([]string, 0, len(clusters))
	for _, cluster := range clusters {
		want = append(want, string(cluster))
	}
	a.eventually(fmt.Sprintf("works are in %v", clusters), func() error {
		if got := slices.Sorted(maps.Keys(a.uids())); !slices.Equal(got, want) {
			return fmt.Errorf("works are in %v", got)
		}
		for _, work := range a.works(a.name + "." + a.name) {
			if work.DeletionTimestamp == nil && !meta.IsStatusConditionTrue(work.Status.Conditions, workv1.WorkAvailable) {
				return fmt.Errorf("%s has not reported its work", work.Namespace)
			}
		}
		return nil
	})
	return a.uids()
}

// reconciled waits until the hub has reconciled the set after all that has happened: until the
// works of the chosen clusters have a new label of the set.
func (a *absence) reconciled() {
	a.Helper()
	label := fmt.Sprint(time.Now().UnixNano())
	if _, err := a.client.WorkV1alpha1().ManifestWorkReplicaSets(a.name).Patch(a.Context(), a.name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"round":%q}}}`, label), metav1.PatchOptions{}); err != nil {
		a.Fatal(err)
	}
	chosen := a.chosen()
	a.eventually("the set is reconciled", func() error {
		for _, work := range a.works(a.name + "." + a.name) {
			if slices.Contains(chosen, wire.ClusterName(work.Namespace)) && work.Labels["round"] != label {
				return fmt.Errorf("%s has labels %v", work.Namespace, work.Labels)
			}
		}
		return nil
	})
}

// unchanged fails the test if the works are not those of before, or if any was deleted meanwhile.
func (a *absence) unchanged(when string, before map[string]types.UID) {
	a.Helper()
	if now := a.uids(); !maps.Equal(before, now) {
		a.Errorf("%s: the works are %v, before %v", when, now, before)
	}
	if deletions := a.requests.Counts(kit.On("manifestworks"), func(r kit.Request) bool {
		return r.Verb == "delete" && strings.HasPrefix(r.Namespace, a.name+"-")
	}); len(deletions) > 0 {
		a.Errorf("%s: %v", when, deletions)
	}
}

// An agent that is stopped for 3 seconds changes its ManagedCluster's condition and nothing else.
func TestShortAbsence(t *testing.T) {
	a := newAbsence(t, "short", time.Minute, 4, nil)
	a.awaitChosen(a.clusters...)
	before := a.awaitWorks(a.clusters...)
	a.reconciled()
	a.requests.TakeCounts()
	a.says(false, a.clusters[0])
	<-time.After(3 * time.Second) // what is tested
	if a.tainted(a.clusters[0]) {
		t.Error("tainted within the grace")
	}
	a.says(true, a.clusters[0])
	decisions := []string{"placementdecisions", "placementdecisions/status", "placements/status"}
	if written := a.requests.Counts(kit.Request.Writes, kit.On(append(decisions, "manifestworks", "manifestworkreplicasets/status")...)); len(written) > 0 {
		t.Errorf("the absence caused %v", written)
	}
	a.reconciled() // of works and the set alone
	if written := a.requests.Counts(kit.Request.Writes, kit.On(decisions...)); len(written) > 0 {
		t.Errorf("the absence, or its end, caused %v", written)
	}
	a.unchanged("after 3 s", before)
}

// An agent that is away for longer than the grace leaves the decisions and keeps its work; the work
// that it has when it returns is the same.
func TestLongAbsence(t *testing.T) {
	a := newAbsence(t, "long", time.Second, 4, nil)
	a.awaitChosen(a.clusters...)
	before := a.awaitWorks(a.clusters...)
	a.says(false, a.clusters[0])
	a.awaitTainted(true, a.clusters[0])
	a.awaitChosen(a.clusters[1:]...)
	a.reconciled()
	a.unchanged("after the grace", before)
	a.says(true, a.clusters[0])
	a.awaitChosen(a.clusters...)
	a.reconciled()
	a.unchanged("after the return", before)

	// The cluster leaves for another reason while it is absent.
	a.says(false, a.clusters[0])
	a.awaitChosen(a.clusters[1:]...)
	if _, err := a.client.ClusterV1().ManagedClusters().Patch(t.Context(), string(a.clusters[0]), types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"fleet":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	a.awaitWorks(a.clusters[1:]...)
}

// A placement that wants a number of clusters has another one take over after the grace.
func TestFailover(t *testing.T) {
	a := newAbsence(t, "failover", time.Second, 3, func(p *clusterv1beta1.Placement) { n := int32(1); p.Spec.NumberOfClusters = &n })
	a.awaitChosen(a.clusters[0])
	a.awaitWorks(a.clusters[0])
	a.says(false, a.clusters[0])
	a.awaitChosen(a.clusters[1])
	a.awaitWorks(a.clusters[1])
	before := a.uids()
	a.says(true, a.clusters[0])
	a.awaitTainted(false, a.clusters[0])
	a.reconciled()
	if now := a.uids(); !maps.Equal(before, now) {
		t.Errorf("the works are %v, before %v", now, before)
	}
}

// When most of the fleet goes away, the fault is the broker's: no taint, no failover, one event, a
// metric and a line in the log, until enough clusters are back. Then the grace begins again for the
// others.
func TestFleetBrake(t *testing.T) {
	a := newAbsence(t, "brake", time.Second, 6, func(p *clusterv1beta1.Placement) { n := int32(3); p.Spec.NumberOfClusters = &n })
	a.awaitChosen(a.clusters[:3]...)
	before := a.awaitWorks(a.clusters[:3]...)
	a.says(false, a.clusters[:4]...)
	brake := func(want float64) {
		t.Helper()
		kit.True(t, fmt.Sprintf("the brake is %v", want), func() bool { return kit.Metric(t, a.registry, "workwire_hub_fleet_absence_brake") == want })
	}
	brake(1)
	a.log.Await(t, `fleet brake changed.*engaged=true absent=4 of=6`)
	since := meta.FindStatusCondition(a.cluster(a.clusters[0]).Status.Conditions, clusterv1.ManagedClusterConditionAvailable).LastTransitionTime
	kit.True(t, "three graces pass", func() bool { return time.Since(since.Time) > 3*time.Second })
	for _, cluster := range a.clusters {
		if a.tainted(cluster) {
			t.Errorf("%s is tainted", cluster)
		}
	}
	if got := a.chosen(); !slices.Equal(got, a.clusters[:3]) {
		t.Errorf("chosen are %v", got)
	}
	a.unchanged("while the brake is engaged", before)
	core := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1()
	reasons := func() map[string]int {
		events, err := core.Events("").List(t.Context(), metav1.ListOptions{})
		kit.NoError(t, err)
		counts := map[string]int{}
		for _, event := range events.Items {
			if strings.HasPrefix(event.InvolvedObject.Name, "brake-") && strings.HasPrefix(event.Reason, "Fleet") {
				counts[event.Reason+" "+event.Type] += max(1, int(event.Count))
			}
		}
		return counts
	}
	kit.Eventually(t, "an event", func() error {
		if got := reasons(); !maps.Equal(got, map[string]int{"FleetAbsent " + corev1.EventTypeWarning: 1}) {
			return fmt.Errorf("events %v", got)
		}
		return nil
	})

	a.says(true, a.clusters[1:4]...)
	brake(0)
	a.awaitTainted(true, a.clusters[0]) // the whole grace later
	a.awaitChosen(a.clusters[1:4]...)
	a.awaitWorks(a.clusters[1:4]...)
	if got := reasons(); got["FleetBack "+corev1.EventTypeNormal] != 1 {
		t.Errorf("events %v", got)
	}
}

// documented decodes the first YAML example of a page of the documentation.
func documented(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	kit.NoError(t, err)
	_, after, _ := strings.Cut(string(text), "```yaml\n")
	example, _, found := strings.Cut(after, "```")
	if !found {
		t.Fatalf("%s has no example", page)
	}
	return strings.Split(example, "---\n")
}

// The Placement of docs/placement.md tolerates what the hub does to an absent cluster: the cluster
// stays selected after the grace, for as long as the toleration says.
func TestDocumentedToleration(t *testing.T) {
	documents := documented(t, "placement.md")
	a := newAbsence(t, "documented", time.Second, 4, func(p *clusterv1beta1.Placement) {
		var example clusterv1beta1.Placement
		kit.NoError(t, yaml.UnmarshalStrict([]byte(documents[len(documents)-1]), &example))
		p.Spec.Tolerations = example.Spec.Tolerations
		if len(p.Spec.Tolerations) != 1 || *p.Spec.Tolerations[0].TolerationSeconds != 3600 {
			t.Fatalf("tolerations %+v", p.Spec.Tolerations)
		}
	})
	a.awaitChosen(a.clusters...)
	before := a.awaitWorks(a.clusters...)
	a.says(false, a.clusters[0])
	a.awaitTainted(true, a.clusters[0])
	a.reconciled()
	if got := a.chosen(); !slices.Equal(got, a.clusters) {
		t.Errorf("chosen are %v", got)
	}
	a.unchanged("after the grace", before)
	// An hour later.
	taints := a.cluster(a.clusters[0]).Spec.Taints
	taints[0].TimeAdded = metav1.NewTime(time.Now().Add(-time.Hour))
	text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"taints": taints}})
	if err == nil {
		text, err = yaml.YAMLToJSON(text)
	}
	if err == nil {
		_, err = a.client.ClusterV1().ManagedClusters().Patch(t.Context(), string(a.clusters[0]), types.MergePatchType, text, metav1.PatchOptions{})
	}
	kit.NoError(t, err)
	a.awaitChosen(a.clusters[1:]...)
	a.reconciled()
	a.unchanged("after an hour", before)
}
