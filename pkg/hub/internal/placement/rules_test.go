package placement

import (
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
)

// noon is the time of evaluations in tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)

// accepted returns a cluster that the hub accepts.
func accepted(name string, change ...func(*clusterv1.ManagedCluster)) *cluster {
	c := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
	for _, f := range change {
		f(c)
	}
	return newCluster(c, nil, nil, noon)
}

func labelled(pairs ...string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		for i := 0; i < len(pairs); i += 2 {
			metav1.SetMetaDataLabel(&c.ObjectMeta, pairs[i], pairs[i+1])
		}
	}
}

func claiming(name, value string) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Status.ClusterClaims = append(c.Status.ClusterClaims, clusterv1.ManagedClusterClaim{Name: name, Value: value})
	}
}

// tainting adds a taint with the value "v" and an age.
func tainting(key string, effect clusterv1.TaintEffect, age time.Duration) func(*clusterv1.ManagedCluster) {
	return func(c *clusterv1.ManagedCluster) {
		c.Spec.Taints = append(c.Spec.Taints, clusterv1.Taint{Key: key, Value: "v", Effect: effect, TimeAdded: metav1.NewTime(noon.Add(-age))})
	}
}

// placing returns a Placement.
func placing(change ...func(*clusterv1beta1.Placement)) *clusterv1beta1.Placement {
	p := &clusterv1beta1.Placement{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-p", Generation: 1}}
	for _, f := range change {
		f(p)
	}
	return p
}

func number(n int32) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) { p.Spec.NumberOfClusters = &n }
}

func perGroup(size intstr.IntOrString) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) {
		p.Spec.DecisionStrategy.GroupStrategy.ClustersPerDecisionGroup = size
	}
}

// naming adds a decision group for clusters with the label group=selected.
func naming(name, selected string) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) {
		strategy := &p.Spec.DecisionStrategy.GroupStrategy
		strategy.DecisionGroups = append(strategy.DecisionGroups, clusterv1beta1.DecisionGroup{
			GroupName: name, ClusterSelector: byLabels("group", selected),
		})
	}
}

func byLabels(key, value string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

func byClaim(key string, operator metav1.LabelSelectorOperator, values ...string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{ClaimSelector: clusterv1beta1.ClusterClaimSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}},
	}}
}

func predicates(of ...clusterv1beta1.ClusterSelector) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) {
		for _, s := range of {
			p.Spec.Predicates = append(p.Spec.Predicates, clusterv1beta1.ClusterPredicate{RequiredClusterSelector: s})
		}
	}
}

func tolerating(of ...clusterv1beta1.Toleration) func(*clusterv1beta1.Placement) {
	return func(p *clusterv1beta1.Placement) { p.Spec.Tolerations = append(p.Spec.Tolerations, of...) }
}

// testCompiler compiles the expressions of tests.
var testCompiler = sync.OnceValues(newCompiler)

// compiling returns a function that compiles each expression again.
func compiling(t testing.TB) func(string) (*celExpression, error) {
	t.Helper()
	compiler, err := testCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) (*celExpression, error) { return compileExpression(compiler, text) }
}

// scoreless are the scores of clusters without any.
func scoreless(string) scores { return nil }

// unused is the usage of clusters that no Placement has chosen.
func unused(string) int { return 0 }

func mustRules(t testing.TB, p *clusterv1beta1.Placement) *rules {
	t.Helper()
	r, err := newRules(p, clustersets.Everything(), compiling(t))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSelection(t *testing.T) {
	c := accepted("c", labelled("region", "west", "tier", "gold"), claiming("id.k8s.io", "https://a b/ü"), claiming("gpus", "4"))
	const in, notIn, exists, not = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	both := byLabels("region", "west")
	both.ClaimSelector = byClaim("gpus", in, "2", "4").ClaimSelector
	bothNot := byLabels("region", "west")
	bothNot.ClaimSelector = byClaim("gpus", in, "2").ClaimSelector
	for _, test := range []struct {
		name string
		of   []clusterv1beta1.ClusterSelector
		want fit
	}{
		{"no predicate", nil, eligible},
		{"an empty one", []clusterv1beta1.ClusterSelector{{}}, eligible},
		{"label", []clusterv1beta1.ClusterSelector{byLabels("region", "west")}, eligible},
		{"other value", []clusterv1beta1.ClusterSelector{byLabels("region", "east")}, notSelected},
		{"one of two predicates", []clusterv1beta1.ClusterSelector{byLabels("region", "east"), byLabels("tier", "gold")}, eligible},
		{"labels and claims", []clusterv1beta1.ClusterSelector{both}, eligible},
		{"labels, but not claims", []clusterv1beta1.ClusterSelector{bothNot}, notSelected},
		{"claim that is no label value", []clusterv1beta1.ClusterSelector{byClaim("id.k8s.io", in, "https://a b/ü")}, eligible},
		{"claim is there", []clusterv1beta1.ClusterSelector{byClaim("gpus", exists)}, eligible},
		{"claim is not there", []clusterv1beta1.ClusterSelector{byClaim("cpus", exists)}, notSelected},
		{"absent as wanted", []clusterv1beta1.ClusterSelector{byClaim("cpus", not)}, eligible},
		{"there, unwanted", []clusterv1beta1.ClusterSelector{byClaim("gpus", not)}, notSelected},
		{"not in", []clusterv1beta1.ClusterSelector{byClaim("gpus", notIn, "4", "5")}, notSelected},
		{"absent is not in", []clusterv1beta1.ClusterSelector{byClaim("cpus", notIn, "4")}, eligible},
		{"in, but absent", []clusterv1beta1.ClusterSelector{byClaim("cpus", in, "")}, notSelected},
	} {
		if got := mustRules(t, placing(predicates(test.of...))).evaluate(c, noon).fit; got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
	all := mustRules(t, placing())
	for what, change := range map[string]func(*clusterv1.ManagedCluster){
		"not accepted":  func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false },
		"being deleted": func(c *clusterv1.ManagedCluster) { c.DeletionTimestamp = &metav1.Time{Time: noon} },
	} {
		if got := all.evaluate(accepted("c", change), noon).fit; got != notAccepted {
			t.Errorf("%s: %d", what, got)
		}
	}
}

func TestTolerations(t *testing.T) {
	const hour = int64(3600)
	seconds := func(n int64) *int64 { return &n }
	const equal, exists = clusterv1beta1.TolerationOpEqual, clusterv1beta1.TolerationOpExists
	const never, ifNew, prefer = clusterv1.TaintEffectNoSelect, clusterv1.TaintEffectNoSelectIfNew, clusterv1.TaintEffectPreferNoSelect
	type tolerance = clusterv1beta1.Toleration
	end := func(age, after time.Duration) int64 { return noon.Add(after - age).Unix() }
	for _, test := range []struct {
		name   string
		effect clusterv1.TaintEffect
		by     []tolerance
		want   verdict
	}{
		{"NoSelect", never, nil, verdict{fit: tainted}},
		{"NoSelectIfNew", ifNew, nil, verdict{fit: keepable}},
		{"PreferNoSelect", prefer, nil, verdict{fit: eligible, avoid: true}},
		{"Equal", never, []tolerance{{Key: "k", Operator: equal, Value: "v"}}, verdict{fit: eligible}},
		{"Equal is the default", never, []tolerance{{Key: "k", Value: "v"}}, verdict{fit: eligible}},
		{"another value", never, []tolerance{{Key: "k", Value: "w"}}, verdict{fit: tainted}},
		{"another key", never, []tolerance{{Key: "l", Operator: exists}}, verdict{fit: tainted}},
		{"Exists", never, []tolerance{{Key: "k", Operator: exists}}, verdict{fit: eligible}},
		{"any key", never, []tolerance{{Operator: exists}}, verdict{fit: eligible}},
		{"any key with Equal is none", never, []tolerance{{Operator: equal, Value: "v"}}, verdict{fit: tainted}},
		{"of an unknown operator", never, []tolerance{{Key: "k", Operator: "Like", Value: "v"}}, verdict{fit: tainted}},
		{"the effect", never, []tolerance{{Key: "k", Operator: exists, Effect: never}}, verdict{fit: eligible}},
		{"another effect", never, []tolerance{{Key: "k", Operator: exists, Effect: ifNew}}, verdict{fit: tainted}},
		{"tolerated NoSelectIfNew", ifNew, []tolerance{{Key: "k", Operator: exists}}, verdict{fit: eligible}},
		{"tolerated PreferNoSelect", prefer, []tolerance{{Key: "k", Operator: exists}}, verdict{fit: eligible}},
		{"for two hours", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(2 * hour)}},
			verdict{fit: eligible, until: end(time.Hour, 2*time.Hour)}},
		{"for an hour that is over", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(hour)}}, verdict{fit: tainted}},
		{"for one second more than that", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(hour + 1)}},
			verdict{fit: eligible, until: noon.Unix() + 1}},
		{"for no time", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(0)}}, verdict{fit: tainted}},
		{"for less", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(-9)}}, verdict{fit: tainted}},
		{"for ages", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(1<<63 - 1)}}, verdict{fit: eligible}},
		{"for a little less", never, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(1<<63 - 1e10)}}, verdict{fit: eligible}},
		{"the longest counts", never, []tolerance{
			{Key: "k", Operator: exists, TolerationSeconds: seconds(hour)}, {Operator: exists, TolerationSeconds: seconds(3 * hour)},
			{Key: "k", Operator: exists, TolerationSeconds: seconds(2 * hour)},
		}, verdict{fit: eligible, until: end(time.Hour, 3*time.Hour)}},
		{"forever counts", never, []tolerance{
			{Key: "k", Operator: exists, TolerationSeconds: seconds(hour)}, {Operator: exists},
		}, verdict{fit: eligible}},
		{"NoSelectIfNew for a time that is over", ifNew, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(hour)}}, verdict{fit: keepable}},
		{"PreferNoSelect for a time that is over", prefer, []tolerance{{Key: "k", Operator: exists, TolerationSeconds: seconds(hour)}},
			verdict{fit: eligible, avoid: true}},
	} {
		c := accepted("c", tainting("k", test.effect, time.Hour))
		if got := mustRules(t, placing(tolerating(test.by...))).evaluate(c, noon); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	two := accepted("c", tainting("a", never, time.Hour), tainting("b", never, time.Minute))
	r := mustRules(t, placing(tolerating(tolerance{Operator: exists, TolerationSeconds: seconds(2 * hour)})))
	if got := r.evaluate(two, noon); got.until != end(time.Hour, 2*time.Hour) {
		t.Errorf("of two taints the first to end counts: %+v", got)
	}
	r = mustRules(t, placing(tolerating(tolerance{Key: "a", Operator: exists})))
	if got := r.evaluate(two, noon); got.fit != tainted {
		t.Errorf("one of two taints is tolerated: %+v", got)
	}
}

// A taint without timeAdded counts from when it was first seen.
func TestTaintWithoutTime(t *testing.T) {
	seconds := int64(60)
	r := mustRules(t, placing(tolerating(clusterv1beta1.Toleration{Operator: clusterv1beta1.TolerationOpExists, TolerationSeconds: &seconds})))
	object := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{
		HubAcceptsClient: true, Taints: []clusterv1.Taint{{Key: "k", Effect: clusterv1.TaintEffectNoSelect}},
	}}
	first := newCluster(object, nil, nil, noon)
	if got := r.evaluate(first, noon); got != (verdict{fit: eligible, until: noon.Unix() + 60}) {
		t.Errorf("when it is new: %+v", got)
	}
	object.Labels = map[string]string{"changed": "yes"}
	later := newCluster(object, nil, first, noon.Add(30*time.Second))
	if got := r.evaluate(later, noon); got.until != noon.Unix()+60 {
		t.Errorf("after another change: %+v", got)
	}
	object.Spec.Taints[0].Value = "other"
	if got := r.evaluate(newCluster(object, nil, later, noon.Add(30*time.Second)), noon); got.until != noon.Unix()+90 {
		t.Errorf("another taint: %+v", got)
	}
}

func TestMisconfigured(t *testing.T) {
	for want, change := range map[string]func(*clusterv1beta1.Placement){
		"metadata.name: has 64 characters":                                                                      func(p *clusterv1beta1.Placement) { p.Name = strings.Repeat("n", 64) },
		"spec.predicates[1].requiredClusterSelector.labelSelector: ":                                            predicates(clusterv1beta1.ClusterSelector{}, byLabels("a b", "c")),
		`spec.predicates[0].requiredClusterSelector.claimSelector.matchExpressions[0]: unknown operator "Like"`: predicates(byClaim("a", "Like")),
		"operator In needs values":                                                                              predicates(byClaim("a", metav1.LabelSelectorOpIn)),
		"operator NotIn needs values":                                                                           predicates(byClaim("a", metav1.LabelSelectorOpNotIn)),
		"operator Exists takes no values":                                                                       predicates(byClaim("a", metav1.LabelSelectorOpExists, "b")),
		"groupStrategy.decisionGroups[0].groupClusterSelector.labelSelector":                                    func(p *clusterv1beta1.Placement) { naming("g", "c d")(p) },
		`clustersPerDecisionGroup is "5 %": must be a number`:                                                   perGroup(intstr.FromString("5 %")),
		`clustersPerDecisionGroup is "101%": must be a number`:                                                  perGroup(intstr.FromString("101%")),
		`clustersPerDecisionGroup is "-1": must be a number`:                                                    perGroup(intstr.FromInt32(-1)),
		`clustersPerDecisionGroup is "-1%": must be a number`:                                                   perGroup(intstr.FromString("-1%")),
	} {
		if _, err := newRules(placing(change), clustersets.Everything(), compiling(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	_, err := newRules(placing(predicates(byClaim("a", "Like")), perGroup(intstr.FromString("x"))), clustersets.Everything(), compiling(t))
	if err == nil || !strings.Contains(err.Error(), "Like") || !strings.Contains(err.Error(), "clustersPer") {
		t.Errorf("not every fault is named: %v", err)
	}
}

func TestSize(t *testing.T) {
	for _, test := range []struct {
		size         intstr.IntOrString
		chosen, want int
	}{
		{intstr.IntOrString{}, 7, 7}, {intstr.FromString(""), 7, 7}, {intstr.FromString("100%"), 7, 7}, {intstr.FromString("0%"), 7, 7},
		{intstr.FromInt32(3), 7, 3}, {intstr.FromString("3"), 7, 3}, {intstr.FromInt32(30), 7, 30}, {intstr.FromInt32(0), 0, 1},
		{intstr.FromString("50%"), 7, 4}, {intstr.FromString("1%"), 7, 1}, {intstr.FromString("25%"), 8, 2}, {intstr.FromString("34%"), 3, 2},
		{intstr.FromString("10%"), 0, 1},
	} {
		if got := mustRules(t, placing(perGroup(test.size))).groupSize(test.chosen); got != test.want {
			t.Errorf("%s of %d: %d, want %d", test.size.String(), test.chosen, got, test.want)
		}
	}
}

// FuzzSize checks that a size is at least 1 and that a percentage is at most all clusters.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"", "5", "100%", "0", "0%", "-1", "99999999999", "101%", "%", "1 %", "+5%"} {
		f.Add(text, 10)
	}
	f.Fuzz(func(t *testing.T, text string, chosen int) {
		if chosen < 0 || chosen > 1e6 {
			t.Skip("no number of clusters")
		}
		r, err := newRules(placing(perGroup(intstr.FromString(text))), clustersets.Everything(), nil)
		if err != nil {
			return
		}
		if got := r.groupSize(chosen); got < 1 || strings.HasSuffix(text, "%") && got > max(1, chosen) {
			t.Errorf("%q of %d: %d", text, chosen, got)
		}
	})
}

// A cluster is selected without a taint if nothing else speaks against it.
func TestSelectsWithout(t *testing.T) {
	const unreachable = clusterv1.ManagedClusterTaintUnreachable
	managed := func(change ...func(*clusterv1.ManagedCluster)) *clusterv1.ManagedCluster {
		c := &clusterv1.ManagedCluster{Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	absent := tainting(unreachable, clusterv1.TaintEffectNoSelect, time.Hour)
	west := placing(predicates(byLabels("region", "west")))
	for _, test := range []struct {
		name      string
		placement *clusterv1beta1.Placement
		cluster   *clusterv1.ManagedCluster
		want      bool
	}{
		{"only absent", placing(), managed(absent), true},
		{"present", placing(), managed(), true},
		{"tainted otherwise", placing(), managed(absent, tainting("k", clusterv1.TaintEffectNoSelect, time.Hour)), false},
		{"it would stay, but not be chosen", placing(), managed(absent, tainting("k", clusterv1.TaintEffectNoSelectIfNew, time.Hour)), true},
		{"it matches", west, managed(absent, labelled("region", "west")), true},
		{"it does not match", west, managed(absent), false},
		{"not accepted", placing(), managed(absent, func(c *clusterv1.ManagedCluster) { c.Spec.HubAcceptsClient = false }), false},
		{"an invalid placement", placing(perGroup(intstr.FromString("x"))), managed(absent), true},
	} {
		if got := SelectsWithout(test.placement, clustersets.Everything(), unreachable, noon)(test.cluster); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
