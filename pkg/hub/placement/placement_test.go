package placement_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

func number(n int32) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) { p.Spec.NumberOfClusters = &n }
}

func label(key, value string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) { metav1.SetMetaDataLabel(&c.ObjectMeta, key, value) }
}

func taint(key string, effect clusterv1.TaintEffect) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Spec.Taints = []clusterv1.Taint{{Key: key, Effect: effect, TimeAdded: metav1.Now()}}
	}
}

// The example of the documentation, as it stands there.
func TestExample(t *testing.T) {
	w := newWorld(t)
	w.serve(nil)
	text, err := os.ReadFile("../../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, _ := strings.Cut(string(text), "```yaml\n")
	example, _, found := strings.Cut(text2, "```")
	if !found {
		t.Fatal("docs/placement.md has no example")
	}
	kinds := map[string]int{}
	for part := range strings.SplitSeq(example, "---\n") {
		var c clusterv1.ManagedCluster
		var p clusterv1beta1.Placement
		if err := yaml.UnmarshalStrict([]byte(part), &c); err == nil {
			w.join("", func(made *clusterv1.ManagedCluster) { *made = c })
			kinds[c.Kind]++
		} else if err := yaml.UnmarshalStrict([]byte(part), &p); err == nil {
			w.namespace = p.Namespace
			w.place("", func(made *clusterv1beta1.Placement) { *made = p })
			kinds[p.Kind]++
		} else {
			t.Errorf("%v:\n%s", err, part)
		}
	}
	if kinds["ManagedCluster"] != 3 || kinds["Placement"] != 1 {
		t.Errorf("the example has %v", kinds)
	}
	w.await("shops", "0/canary: shop-berlin; 1/: shop-paris shop-rome")
	c := meta.FindStatusCondition(w.get("shops").Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "AllDecisionsScheduled" {
		t.Errorf("%+v", c)
	}
	d := w.decisions("shops")[0]
	if owner := metav1.GetControllerOf(&d); d.Name != "shops-decision-1" || owner == nil || owner.Kind != "Placement" || owner.UID != w.get("shops").UID {
		t.Errorf("%+v", d.ObjectMeta)
	}
}

func TestSelectionAndChurn(t *testing.T) {
	w := newWorld(t)
	w.serve(nil)
	w.place("two", number(2))
	w.await("two", "0/:")
	for _, name := range []string{"b", "c", "d"} {
		w.join(name)
	}
	w.join("a", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	w.await("two", "0/: b c")

	w.cluster("a", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })
	w.cluster("c", taint("cluster.open-cluster-management.io/unavailable", clusterv1.TaintEffectNoSelect))
	w.await("two", "0/: a b") // either was a reason to look, neither takes the place of b
	w.cluster("c", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
	w.cluster("b", taint("old", clusterv1.TaintEffectNoSelectIfNew))
	w.placement("two", number(3))
	w.await("two", "0/: a b c")
	w.leave("a")
	w.await("two", "0/: b c d")
	w.cluster("c", label("world", "another"))
	w.await("two", "0/: b d")
	p := w.get("two")
	w.eventually("the status says what is missing", func() bool {
		c := meta.FindStatusCondition(w.get("two").Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
		return c.Status == metav1.ConditionFalse && c.Reason == "NotAllDecisionsScheduled" &&
			c.Message == "1 cluster decisions unscheduled: other clusters meet no predicate" && c.ObservedGeneration == p.Generation
	})

	// A claim, which is in the status.
	w.placement("two", func(p *clusterv1beta1.Placement) {
		p.Spec.NumberOfClusters = nil
		p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: "region.open-cluster-management.io", Operator: metav1.LabelSelectorOpIn, Values: []string{"eu west/1"}},
		}
	})
	w.await("two", "0/:")
	c, err := w.client.ClusterV1().ManagedClusters().Get(t.Context(), w.namespace+"-d", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region.open-cluster-management.io", Value: "eu west/1"}}
	if _, err := w.client.ClusterV1().ManagedClusters().UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.await("two", "0/: d")
}

// More clusters than one PlacementDecision holds, in groups that change.
func TestManyClustersInGroups(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	for i := range 230 {
		w.join(fmt.Sprintf("c%03d", i), label("canary", fmt.Sprint(i < 20)))
	}
	strategy := &clusterv1beta1.GroupStrategy{DecisionGroups: []clusterv1beta1.DecisionGroup{
		{GroupName: "canary", ClusterSelector: selecting("canary", "true")}, {GroupName: "none", ClusterSelector: selecting("canary", "maybe")},
	}}
	w.place("many", func(p *clusterv1beta1.Placement) { p.Spec.DecisionStrategy.GroupStrategy = *strategy })
	names := func(from, to int) string {
		var names string
		for i := from; i < to; i++ {
			names += fmt.Sprintf(" c%03d", i)
		}
		return names
	}
	// check holds groups against the decisions and the status.
	check := func(want map[string]string) {
		t.Helper()
		w.eventually(fmt.Sprintf("the groups %v", want), func() bool {
			got := map[string]string{}
			for _, d := range w.decisions("many") {
				key := d.Labels[clusterv1beta1.DecisionGroupIndexLabel] + "/" + d.Labels[clusterv1beta1.DecisionGroupNameLabel]
				for _, decision := range d.Status.Decisions {
					got[key] += " " + strings.TrimPrefix(decision.ClusterName, w.namespace+"-")
				}
			}
			p := w.get("many")
			if len(got) != len(want) || len(p.Status.DecisionGroups) != len(want) {
				return false
			}
			for _, g := range p.Status.DecisionGroups {
				key := fmt.Sprintf("%d/%s", g.DecisionGroupIndex, g.DecisionGroupName)
				clusters := strings.Fields(got[key])
				slices.Sort(clusters)
				if !slices.Equal(clusters, strings.Fields(want[key])) || int(g.ClustersCount) != len(clusters) {
					return false
				}
			}
			return true
		})
	}
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 230)})
	sizes := func() (sizes []int) {
		for _, d := range w.decisions("many") {
			sizes = append(sizes, len(d.Status.Decisions))
		}
		return sizes
	}
	if got := sizes(); !slices.Equal(got, []int{20, 100, 100, 10}) {
		t.Errorf("the decisions hold %v", got)
	}
	// One that goes costs one write of decisions.
	before := len(c.writes(w.namespace))
	w.leave("c050")
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 50) + names(51, 230)})
	if got := c.writes(w.namespace)[before:]; len(got) != 2 || !strings.HasPrefix(got[0], "update placementdecisions/status") ||
		!strings.HasPrefix(got[1], "update placements/status") {
		t.Errorf("one cluster left: %q", got)
	}
	w.join("c050", label("canary", "false"))
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 230)})
	w.placement("many", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = intstr.FromString("50%")
	})
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 135), "2/": names(135, 230)})
	w.placement("many", func(p *clusterv1beta1.Placement) { p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = nil })
	w.eventually("two groups", func() bool { return len(w.get("many").Status.DecisionGroups) == 2 })
	w.placement("many", number(3))
	w.eventually("one decision", func() bool { return slices.Equal(sizes(), []int{2, 1}) || slices.Equal(sizes(), []int{1, 2}) })
}

// When the time of a toleration is over a cluster is given up, though nothing
// else happens.
func TestTolerationSeconds(t *testing.T) {
	w := newWorld(t)
	w.serve(nil)
	const seconds = 3
	w.place("p", func(p *clusterv1beta1.Placement) {
		s := int64(seconds)
		p.Spec.Tolerations = []clusterv1beta1.Toleration{{Key: clusterv1.ManagedClusterTaintUnavailable, Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &s}}
	})
	w.join("a")
	w.join("b")
	w.await("p", "0/: a b")
	since := time.Now()
	w.cluster("a", taint(clusterv1.ManagedClusterTaintUnavailable, clusterv1.TaintEffectNoSelect))
	w.cluster("b", func(c *clusterv1.ManagedCluster) { // timeAdded left out
		c.Spec.Taints = []clusterv1.Taint{{Key: clusterv1.ManagedClusterTaintUnavailable, Effect: clusterv1.TaintEffectNoSelect}}
	})
	w.await("p", "0/:")
	if took := time.Since(since); took < (seconds-1)*time.Second { // timeAdded is in whole seconds
		t.Errorf("given up after %s", took)
	}
	w.cluster("a", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
	w.await("p", "0/: a")
}

func TestDeletion(t *testing.T) {
	w := newWorld(t)
	w.withoutGarbageCollector()
	first := w.serve(nil)
	w.join("a")
	kept := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.namespace, Name: "by-hand", Labels: map[string]string{clusterv1beta1.PlacementLabel: "nobody"},
	}}
	if _, err := w.client.ClusterV1beta1().PlacementDecisions(w.namespace).Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := func(name string) {
		t.Helper()
		if err := w.client.ClusterV1beta1().Placements(w.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two", "three"} {
		w.place(name)
		w.await(name, "0/: a")
	}
	remove("one")
	w.eventually("the decisions of one are gone", func() bool { return len(w.decisions("one")) == 0 })

	// What happens while nobody serves is made up for.
	first.stop()
	remove("two")
	remove("three")
	made := w.place("three", func(p *clusterv1beta1.Placement) {
		p.Spec.Predicates[0].RequiredClusterSelector = selecting("no", "such")
	})
	if len(w.decisions("two")) != 1 || len(w.decisions("three")) != 1 {
		t.Fatal("there is nothing to clean up")
	}
	second := w.serve(nil)
	w.eventually("the decisions of two are gone", func() bool { return len(w.decisions("two")) == 0 })
	w.await("three", "0/:")
	if d := w.decisions("three")[0]; d.OwnerReferences[0].UID != made.UID {
		t.Errorf("owned by %+v", d.OwnerReferences)
	}
	if _, err := w.client.ClusterV1beta1().PlacementDecisions(w.namespace).Get(t.Context(), "by-hand", metav1.GetOptions{}); err != nil {
		t.Errorf("somebody else's: %v", err)
	}
	if got := second.metric(t, "workwire_hub_placement_writes_total", "delete"); got < 2 {
		t.Errorf("%v deletions are counted", got)
	}
}

// A placement that can not be followed says so, and nothing is given up.
func TestMisconfiguredPlacement(t *testing.T) {
	w := newWorld(t)
	c := w.serve(nil)
	w.join("a")
	w.place("p")
	w.await("p", "0/: a")
	w.placement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.ClusterSets = []string{"shops"}
		p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}
	})
	w.eventually("the condition says so", func() bool {
		is := meta.FindStatusCondition(w.get("p").Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
		return is.Status == metav1.ConditionTrue && strings.Contains(is.Message, "spec.clusterSets: cluster sets are not served") &&
			strings.Contains(is.Message, `"Like" is no operator`)
	})
	w.leave("a")
	w.join("b")
	w.await("p", "0/: a")
	w.eventually("it is counted", func() bool { return c.metric(t, "workwire_hub_placement_misconfigured_placements") == 1 })
	w.placement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.ClusterSets, p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = nil, nil
	})
	w.await("p", "0/: b")
	w.eventually("the condition is taken back", func() bool {
		conditions := w.get("p").Status.Conditions
		return meta.IsStatusConditionFalse(conditions, clusterv1beta1.PlacementConditionMisconfigured) &&
			meta.IsStatusConditionTrue(conditions, clusterv1beta1.PlacementConditionSatisfied)
	})

	long := w.place(strings.Repeat("n", 64))
	w.eventually("a name that is too long", func() bool {
		is := meta.FindStatusCondition(w.get(long.Name).Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
		return is != nil && is.Status == metav1.ConditionTrue && strings.Contains(is.Message, "choose a shorter name")
	})
}
