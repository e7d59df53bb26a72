package placement

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
)

const (
	exact    = clusterv1beta1.PrioritizerPolicyModeExact
	additive = clusterv1beta1.PrioritizerPolicyModeAdditive
)

func prioritizing(mode clusterv1beta1.PrioritizerPolicyMode, configurations ...clusterv1beta1.PrioritizerConfig) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) {
		p.Spec.PrioritizerPolicy = clusterv1beta1.PrioritizerPolicy{Mode: mode, Configurations: configurations}
	}
}

func builtIn(name string, weight int32) clusterv1beta1.PrioritizerConfig {
	return clusterv1beta1.PrioritizerConfig{ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: name}, Weight: weight}
}

func addOn(resource, score string, weight int32) clusterv1beta1.PrioritizerConfig {
	return clusterv1beta1.PrioritizerConfig{Weight: weight, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{
		Type: clusterv1beta1.ScoreCoordinateTypeAddOn, AddOn: &clusterv1beta1.AddOnScore{ResourceName: resource, ScoreName: score},
	}}
}

func allocating(cpu, memory string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Status.Allocatable = clusterv1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
}

// TestPriorities: which two of the clusters a to d are chosen.
func TestPriorities(t *testing.T) {
	const cpu, memory, steady, balance = "ResourceAllocatableCPU", "ResourceAllocatableMemory", "Steady", "Balance"
	with := func(name string, value int, validFor time.Duration) *clusterv1alpha1.AddOnPlacementScore {
		return scored(name, "usage", validFor, "cpu", value)
	}
	avoided := tainting("k", clusterv1.TaintEffectPreferNoSelect, 0)
	clusters := []*cluster{
		withScores(accepted("a", allocating("2", "8Gi")), with("a", -100, 0)),
		withScores(accepted("b", allocating("4", "4Gi")), with("b", 20, time.Minute)),
		withScores(accepted("c", allocating("8", "2Gi")), with("c", 30, -time.Minute)),
		withScores(accepted("d"), with("d", 90, 0)),
	}
	usage := map[string]int{"a": 4, "b": 2, "c": 1}
	for _, test := range []struct {
		name   string
		policy func(*clusterv1beta1.Placement)
		before string
		want   string
	}{
		{"no policy", prioritizing(""), "c d", "c d"},
		{"the default policy is balanced", prioritizing(additive), "", "c d"},
		{"and steady", prioritizing(additive), "b c", "b c"},
		{"but not at any price", prioritizing(additive), "a b", "b d"},
		{"the most CPU", prioritizing(exact, builtIn(cpu, 1)), "", "b c"},
		{"the most memory", prioritizing(exact, builtIn(memory, 1)), "c d", "a b"},
		{"the least memory", prioritizing(exact, builtIn(memory, -1)), "", "c d"},
		{"both", prioritizing(exact, builtIn(cpu, 1), builtIn(memory, 2)), "", "a b"},
		{"a score of an add-on; c's has expired", prioritizing(exact, addOn("usage", "cpu", 1)), "", "b d"},
		{"the lowest score", prioritizing(exact, addOn("usage", "cpu", -1)), "", "a c"},
		{"one that no cluster has", prioritizing(exact, addOn("usage", "disk", 10)), "b d", "b d"},
		{"a heavy one", prioritizing(additive, addOn("usage", "cpu", 10)), "a c", "b d"},
		{"none is equal", prioritizing(exact), "b d", "b d"},
		{"a disabled one", prioritizing(exact, addOn("usage", "cpu", 0)), "", "a b"},
		{"steady against scores", prioritizing(exact, builtIn(steady, 10), addOn("usage", "cpu", 1)), "a c", "a c"},
		{"unsteady", prioritizing(exact, builtIn(steady, -1)), "a b", "c d"},
		{"crowded", prioritizing(exact, builtIn(balance, -1)), "", "a b"},
	} {
		p := placing(number(2), test.policy)
		used := func(name string) int {
			if strings.Contains(test.before, name) {
				return usage[name] + 1 // its own
			}
			return usage[name]
		}
		if got := schedule(mustRules(t, p), clusters, parse(test.before), noon, used); text(got.groups) != test.want {
			t.Errorf("%s: %s, want %s", test.name, text(got.groups), test.want)
		}
	}
	few := []*cluster{withScores(accepted("a", avoided), with("a", 100, 0)), accepted("b"), withScores(accepted("c"), with("c", -100, 0))}
	if got := schedule(mustRules(t, placing(number(2), prioritizing(exact, addOn("usage", "cpu", 1)))), few, nil, noon, unused); text(got.groups) != "b c" {
		t.Errorf("PreferNoSelect comes last, whatever the score: %s", text(got.groups))
	}
	o := schedule(mustRules(t, placing(number(1), prioritizing(exact, addOn("usage", "cpu", 1)))), clusters, nil, noon, unused)
	if want := noon.Add(time.Minute).Truncate(time.Second); !o.requeueAt.Equal(want) {
		t.Errorf("scores of a cluster that is not chosen expire: again at %v, want %v", o.requeueAt, want)
	}
}

// TestAffectedByResources: a change of what is allocatable affects the Placements that prefer by it.
func TestAffectedByResources(t *testing.T) {
	x := newClusterIndex(scoreless)
	by := prioritizing(exact, builtIn("ResourceAllocatableCPU", 1))
	r := mustRules(t, placing(by))
	a, b := accepted("c", allocating("2", "1Gi")), accepted("c", allocating("3", "1Gi"))
	if r.evaluate(a, noon) == r.evaluate(b, noon) {
		t.Error("another CPU is the same")
	}
	if c := accepted("c", allocating("2", "2Gi")); r.evaluate(a, noon) != r.evaluate(c, noon) {
		t.Error("another memory is another verdict")
	}
	x.observe(a.object, noon)
	x.setRules(types.NamespacedName{Name: "p"}, r)
	if got := x.observe(b.object, noon); len(got) != 1 {
		t.Errorf("affects %v", got)
	}
}

func TestMisconfiguredPolicies(t *testing.T) {
	for want, change := range map[string]func(*clusterv1beta1.Placement){
		`spec.prioritizerPolicy.mode: unknown mode "Other"`:                         prioritizing("Other"),
		`prioritizerPolicy.configurations[1]: weight is 11: must be from -10 to 10`: prioritizing(exact, builtIn("Steady", 10), builtIn("Steady", 11)),
		`configurations[0]: has no scoreCoordinate`:                                 prioritizing(exact, clusterv1beta1.PrioritizerConfig{}),
		`configurations[0]: unknown prioritizer ""`:                                 prioritizing(exact, builtIn("", 1)),
		`configurations[0]: scoreCoordinate of type AddOn needs addOn`:              prioritizing(exact, addOn("", "cpu", 1)),
		`configurations[0]: unknown type "Other"`: prioritizing(exact, clusterv1beta1.PrioritizerConfig{
			ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: "Other"}}),
		`spec.spreadPolicy.spreadConstraints: [0]: has no topologyKey`:                                                    spreading(term("", "", 1, "")),
		`[1]: unknown topologyKeyType "Name": must be Label or Claim`:                                                     spreading(term("a", "Label", 1, ""), term("a", "Name", 1, "")),
		`[0]: unknown whenUnsatisfiable "Never"`:                                                                          spreading(term("a", "Claim", 1, "Never")),
		`there are 9, at most 8 are allowed`:                                                                              spreading(make([]clusterv1beta1.SpreadConstraintsTerm, 9)...),
		`spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[1]: expression "1": it must return a bool`: predicates(byExpressions("true", "1")),
		`groupClusterSelector.celSelector.celExpressions[0]: expression "nobody": ERROR: <input>:1:1: undeclared reference`: func(p *clusterv1beta1.Placement) {
			naming("g", "1")(p)
			p.Spec.DecisionStrategy.GroupStrategy.DecisionGroups[0].ClusterSelector = byExpressions("nobody")
		},
		`there are 65 celExpressions with 260 characters, at most 64 with 10000 are allowed`: predicates(byExpressions(strings.Fields(strings.Repeat("true ", 65))...)),
		`there are 1 celExpressions with 10001 characters`:                                   predicates(byExpressions(strings.Repeat(" ", 9997) + "true")),
	} {
		if _, err := newRules(placing(change), clustersets.Everything(), compiling(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestUsage counts decisions as they come, change and go.
func TestUsage(t *testing.T) {
	u := usage{counts: map[string]int{}}
	decision := func(clusters ...string) *clusterv1beta1.PlacementDecision {
		d := &clusterv1beta1.PlacementDecision{}
		d.Status.Decisions = clusterDecisions(clusters)
		return d
	}
	u.observe(nil, decision("a", "b"))
	u.observe(nil, decision("b", "c"))
	u.observe(decision("a", "b"), decision("b", "d"))
	u.observe(decision("b", "c"), nil)
	for name, want := range map[string]int{"a": 0, "b": 1, "c": 0, "d": 1} {
		if got := u.of(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	if len(u.counts) != 2 {
		t.Errorf("kept: %v", u.counts)
	}
}
