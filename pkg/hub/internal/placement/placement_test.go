package placement_test

import (
	"context"
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
	clusterv1beta2 "github.com/workwire/workwire/pkg/apis/cluster/v1beta2"
	"github.com/workwire/workwire/test/kit"
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

// TestExample applies the example of the documentation.
func TestExample(t *testing.T) {
	e := newEnv(t)
	e.startWith(nil, true)
	text, err := os.ReadFile("../../../../docs/placement.md")
	kit.NoError(t, err)
	_, text2, _ := strings.Cut(string(text), "```yaml\n")
	example, _, found := strings.Cut(text2, "```")
	if !found {
		t.Fatal("docs/placement.md has no example")
	}
	kinds := map[string]int{}
	for part := range strings.SplitSeq(example, "---\n") {
		var c clusterv1.ManagedCluster
		var p clusterv1beta1.Placement
		var b clusterv1beta2.ManagedClusterSetBinding
		if err := yaml.UnmarshalStrict([]byte(part), &c); err == nil {
			e.createCluster("", func(made *clusterv1.ManagedCluster) { *made = c })
			kinds[c.Kind]++
		} else if err := yaml.UnmarshalStrict([]byte(part), &b); err == nil {
			e.namespace = b.Namespace
			e.bind(b.Name)
			e.Cleanup(func() {
				_ = e.client.ClusterV1beta2().ManagedClusterSetBindings(b.Namespace).Delete(context.Background(), b.Name, metav1.DeleteOptions{})
			})
			kinds[b.Kind]++
		} else if err := yaml.UnmarshalStrict([]byte(part), &p); err == nil {
			e.namespace = p.Namespace
			e.createPlacement("", func(made *clusterv1beta1.Placement) { *made = p })
			kinds[p.Kind]++
		} else {
			t.Errorf("%v:\n%s", err, part)
		}
	}
	if kinds["ManagedCluster"] != 3 || kinds["Placement"] != 1 || kinds["ManagedClusterSetBinding"] != 1 {
		t.Errorf("the example has %v", kinds)
	}
	e.await("shops", "0/canary: shop-berlin; 1/: shop-paris shop-rome")
	c := meta.FindStatusCondition(e.placement("shops").Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != "AllDecisionsScheduled" {
		t.Errorf("%+v", c)
	}
	d := e.decisions("shops")[0]
	if owner := metav1.GetControllerOf(&d); d.Name != "shops-decision-1" || owner == nil || owner.Kind != "Placement" || owner.UID != e.placement("shops").UID {
		t.Errorf("%+v", d.ObjectMeta)
	}
}

func TestSelectionAndChurn(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	e.createPlacement("two", number(2))
	e.await("two", "0/:")
	for _, name := range []string{"b", "c", "d"} {
		e.createCluster(name)
	}
	e.createCluster("a", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false })
	e.await("two", "0/: b c")

	e.updateCluster("a", func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = true })
	e.updateCluster("c", taint("cluster.open-cluster-management.io/unavailable", clusterv1.TaintEffectNoSelect))
	e.await("two", "0/: a b") // both changes cause a reconcile, but neither replaces b
	e.updateCluster("c", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
	e.updateCluster("b", taint("old", clusterv1.TaintEffectNoSelectIfNew))
	e.updatePlacement("two", number(3))
	e.await("two", "0/: a b c")
	e.deleteCluster("a")
	e.await("two", "0/: b c d")
	e.updateCluster("c", label("env", "another"))
	e.await("two", "0/: b d")
	p := e.placement("two")
	kit.True(t, "the status reports the missing cluster", func() bool {
		c := meta.FindStatusCondition(e.placement("two").Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
		return c.Status == metav1.ConditionFalse && c.Reason == "NotAllDecisionsScheduled" &&
			c.Message == "1 cluster decisions unscheduled: other clusters match no predicate" && c.ObservedGeneration == p.Generation
	})

	// Claims are in the status.
	e.updatePlacement("two", func(p *clusterv1beta1.Placement) {
		p.Spec.NumberOfClusters = nil
		p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{
			{Key: "region.open-cluster-management.io", Operator: metav1.LabelSelectorOpIn, Values: []string{"eu west/1"}},
		}
	})
	e.await("two", "0/:")
	c, err := e.client.ClusterV1().ManagedClusters().Get(t.Context(), e.namespace+"-d", metav1.GetOptions{})
	kit.NoError(t, err)
	c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region.open-cluster-management.io", Value: "eu west/1"}}
	if _, err := e.client.ClusterV1().ManagedClusters().UpdateStatus(t.Context(), c, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	e.await("two", "0/: d")
}

// TestManyClustersInGroups covers more clusters than a PlacementDecision holds, in changing groups.
func TestManyClustersInGroups(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	for i := range 230 {
		e.createCluster(fmt.Sprintf("c%03d", i), label("canary", fmt.Sprint(i < 20)))
	}
	strategy := &clusterv1beta1.GroupStrategy{DecisionGroups: []clusterv1beta1.DecisionGroup{
		{GroupName: "canary", ClusterSelector: selecting("canary", "true")}, {GroupName: "none", ClusterSelector: selecting("canary", "maybe")},
	}}
	e.createPlacement("many", func(p *clusterv1beta1.Placement) { p.Spec.DecisionStrategy.GroupStrategy = *strategy })
	names := func(from, to int) string {
		var names string
		for i := from; i < to; i++ {
			names += fmt.Sprintf(" c%03d", i)
		}
		return names
	}
	// check compares the decisions and the status with the groups.
	check := func(want map[string]string) {
		t.Helper()
		kit.True(t, fmt.Sprintf("the groups %v", want), func() bool {
			got := map[string]string{}
			for _, d := range e.decisions("many") {
				key := d.Labels[clusterv1beta1.DecisionGroupIndexLabel] + "/" + d.Labels[clusterv1beta1.DecisionGroupNameLabel]
				for _, decision := range d.Status.Decisions {
					got[key] += " " + strings.TrimPrefix(decision.ClusterName, e.namespace+"-")
				}
			}
			p := e.placement("many")
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
		for _, d := range e.decisions("many") {
			sizes = append(sizes, len(d.Status.Decisions))
		}
		return sizes
	}
	if got := sizes(); !slices.Equal(got, []int{20, 100, 100, 10}) {
		t.Errorf("the decisions hold %v", got)
	}
	// A cluster that is deleted costs one write of decisions.
	before := len(c.writes(e.namespace))
	e.deleteCluster("c050")
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 50) + names(51, 230)})
	if got := c.writes(e.namespace)[before:]; len(got) != 2 || got[0].String() != "update placementdecisions/status" ||
		got[1].String() != "update placements/status" {
		t.Errorf("one cluster left: %v", got)
	}
	e.createCluster("c050", label("canary", "false"))
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 230)})
	e.updatePlacement("many", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = intstr.FromString("50%")
	})
	check(map[string]string{"0/canary": names(0, 20), "1/": names(20, 135), "2/": names(135, 230)})
	e.updatePlacement("many", func(p *clusterv1beta1.Placement) { p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = nil })
	kit.True(t, "two groups", func() bool { return len(e.placement("many").Status.DecisionGroups) == 2 })
	e.updatePlacement("many", number(3))
	kit.True(t, "one decision", func() bool { return slices.Equal(sizes(), []int{2, 1}) || slices.Equal(sizes(), []int{1, 2}) })
}

// A cluster is removed from the decisions when a toleration expires, without any other change.
func TestTolerationSeconds(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	const seconds = 3
	e.createPlacement("p", func(p *clusterv1beta1.Placement) {
		s := int64(seconds)
		p.Spec.Tolerations = []clusterv1beta1.Toleration{{Key: clusterv1.ManagedClusterTaintUnavailable, Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &s}}
	})
	e.createCluster("a")
	e.createCluster("b")
	e.await("p", "0/: a b")
	since := time.Now()
	e.updateCluster("a", taint(clusterv1.ManagedClusterTaintUnavailable, clusterv1.TaintEffectNoSelect))
	e.updateCluster("b", func(c *clusterv1.ManagedCluster) { // without timeAdded
		c.Spec.Taints = []clusterv1.Taint{{Key: clusterv1.ManagedClusterTaintUnavailable, Effect: clusterv1.TaintEffectNoSelect}}
	})
	e.await("p", "0/:")
	if took := time.Since(since); took < (seconds-1)*time.Second { // timeAdded is in whole seconds
		t.Errorf("removed after %s", took)
	}
	e.updateCluster("a", func(c *clusterv1.ManagedCluster) { c.Spec.Taints = nil })
	e.await("p", "0/: a")
}

func TestDeletion(t *testing.T) {
	e := newEnv(t)
	e.withoutGarbageCollector()
	first := e.start(nil)
	e.createCluster("a")
	kept := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{
		Namespace: e.namespace, Name: "by-hand", Labels: map[string]string{clusterv1beta1.PlacementLabel: "nobody"},
	}}
	if _, err := e.client.ClusterV1beta1().PlacementDecisions(e.namespace).Create(t.Context(), kept, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove := func(name string) {
		t.Helper()
		kit.NoError(t, e.client.ClusterV1beta1().Placements(e.namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range []string{"one", "two", "three"} {
		e.createPlacement(name)
		e.await(name, "0/: a")
	}
	remove("one")
	kit.True(t, "the decisions of one are gone", func() bool { return len(e.decisions("one")) == 0 })

	// Changes without a running controller are handled at its next start.
	first.stop()
	remove("two")
	remove("three")
	made := e.createPlacement("three", func(p *clusterv1beta1.Placement) {
		p.Spec.Predicates[0].RequiredClusterSelector = selecting("no", "such")
	})
	if len(e.decisions("two")) != 1 || len(e.decisions("three")) != 1 {
		t.Fatal("the decisions are already deleted")
	}
	second := e.start(nil)
	kit.True(t, "the decisions of two are gone", func() bool { return len(e.decisions("two")) == 0 })
	e.await("three", "0/:")
	if d := e.decisions("three")[0]; d.OwnerReferences[0].UID != made.UID {
		t.Errorf("owned by %+v", d.OwnerReferences)
	}
	if _, err := e.client.ClusterV1beta1().PlacementDecisions(e.namespace).Get(t.Context(), "by-hand", metav1.GetOptions{}); err != nil {
		t.Errorf("a decision of another placement: %v", err)
	}
	if got := second.metric("workwire_hub_placement_writes_total", "write=delete"); got < 2 {
		t.Errorf("%v deletions are counted", got)
	}
}

// An invalid spec is reported in a condition, and the decisions stay unchanged.
func TestMisconfiguredPlacement(t *testing.T) {
	e := newEnv(t)
	c := e.start(nil)
	e.createCluster("a")
	e.createPlacement("p")
	e.await("p", "0/: a")
	e.updatePlacement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups = []clusterv1beta1.DecisionGroup{{GroupName: "g", ClusterSelector: selecting("c d", "e")}}
		p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Like"}}
	})
	kit.True(t, "the condition is True", func() bool {
		is := meta.FindStatusCondition(e.placement("p").Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
		return is.Status == metav1.ConditionTrue && strings.Contains(is.Message, "groupClusterSelector.labelSelector: ") &&
			strings.Contains(is.Message, `unknown operator "Like"`)
	})
	e.deleteCluster("a")
	e.createCluster("b")
	e.await("p", "0/: a")
	kit.True(t, "the metric counts the placement", func() bool { return c.metric("workwire_hub_placement_misconfigured_placements") == 1 })
	e.updatePlacement("p", func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups, p.Spec.Predicates[0].RequiredClusterSelector.ClaimSelector.MatchExpressions = nil, nil
	})
	e.await("p", "0/: b")
	kit.True(t, "the condition is False", func() bool {
		conditions := e.placement("p").Status.Conditions
		return meta.IsStatusConditionFalse(conditions, clusterv1beta1.PlacementConditionMisconfigured) &&
			meta.IsStatusConditionTrue(conditions, clusterv1beta1.PlacementConditionSatisfied)
	})

	long := e.createPlacement(strings.Repeat("n", 64))
	kit.True(t, "a name that is too long", func() bool {
		is := meta.FindStatusCondition(e.placement(long.Name).Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
		return is != nil && is.Status == metav1.ConditionTrue && strings.Contains(is.Message, "choose a shorter name")
	})
}
