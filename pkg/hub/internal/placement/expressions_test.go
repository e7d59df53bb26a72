package placement

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/pkg/client/clientset/versioned"
	"github.com/workwire/workwire/pkg/hub/internal/clustersets"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
)

func byExpressions(texts ...string) clusterv1beta1.ClusterSelector {
	return clusterv1beta1.ClusterSelector{CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: texts}}
}

// scored returns an AddOnPlacementScore with scores given as name and value in turn, which expires after a time, if that
// is not 0.
func scored(cluster, name string, validFor time.Duration, scores ...any) *clusterv1alpha1.AddOnPlacementScore {
	s := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	for i := 0; i < len(scores); i += 2 {
		s.Status.Scores = append(s.Status.Scores, clusterv1alpha1.AddOnPlacementScoreItem{Name: scores[i].(string), Value: int32(scores[i+1].(int))})
	}
	if validFor != 0 {
		s.Status.ValidUntil = &metav1.Time{Time: noon.Add(validFor)}
	}
	return s
}

// withScores returns c with these scores.
func withScores(c *cluster, of ...*clusterv1alpha1.AddOnPlacementScore) *cluster {
	byName := scores{}
	for _, s := range of {
		byName[s.Name] = s
	}
	return newCluster(c.object, byName, nil, noon)
}

// describedCluster is a cluster with all that expressions can read.
func describedCluster() *cluster {
	usage := scored("c", "usage", time.Minute, "cpu", 70, "memory", -5)
	memory := resource.MustParse("300Mi")
	usage.Status.Scores[1].Quantity = &memory
	return withScores(accepted("c", labelled("version", "1.31.2", "env", "prod"), func(c *clusterv1.ManagedCluster) {
		c.Annotations = map[string]string{"settings": `{"tier":2,"zones":["a","b"]}`, clusterv1.LastSeenAnnotationKey: "now"}
		c.Spec.Taints = []clusterv1.Taint{{Key: "gpu", Value: "v", Effect: clusterv1.TaintEffectPreferNoSelect}}
		c.Status.Version.Kubernetes = "v1.36.3"
		c.Status.ClusterClaims = []clusterv1.ManagedClusterClaim{{Name: "region", Value: "eu"}}
		c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ManagedClusterConditionAvailable, Status: metav1.ConditionTrue}}
		c.Status.Allocatable = clusterv1.ResourceList{"cpu": resource.MustParse("3500m"), "memory": resource.MustParse("16Gi")}
	}), usage, scored("c", "old", -time.Minute, "cpu", 90))
}

// TestExpressions: an empty want is true, "false" is false, and another text is in the fault.
func TestExpressions(t *testing.T) {
	c := describedCluster()
	for text, want := range map[string]string{
		`managedCluster.metadata.name == "c"`:                                                  "",
		`managedCluster.metadata.labels["version"].matches('^1\\.(30|31)\\.\\d+$')`:            "",
		`managedCluster.metadata.labels.env in ["prod", "test"]`:                               "",
		`"other" in managedCluster.metadata.labels`:                                            "false",
		`managedCluster.metadata.labels["other"] == "x"`:                                       "no such key: other",
		`has(managedCluster.metadata.labels.other)`:                                            "false",
		`managedCluster.metadata.labels[?"other"].orValue("none") == "none"`:                   "",
		`managedCluster.metadata.annotations["settings"].parseJSON().tier == 2.0`:              "",
		`parseJSON(managedCluster.metadata.annotations["settings"]).zones.exists(z, z == "b")`: "",
		`parseJSON("{") == 1`: "the text is not JSON",
		`has(managedCluster.metadata.annotations["workwire.dev/last-seen"])`:                                            "invalid argument to has() macro",
		`"workwire.dev/last-seen" in managedCluster.metadata.annotations`:                                               "false",
		`managedCluster.spec.hubAcceptsClient && managedCluster.spec.taints.exists(t, t.key == "gpu")`:                  "",
		`managedCluster.status.version.kubernetes == "v1.36.3"`:                                                         "",
		`semver(managedCluster.metadata.labels["version"]).isGreaterThan(semver("1.30.0"))`:                             "",
		`semver(managedCluster.status.version.kubernetes).isLessThan(semver("1.36"))`:                                   "false",
		`semver(managedCluster.status.version.kubernetes).isGreaterThan(semver("v1.36.2"))`:                             "",
		`managedCluster.status.clusterClaims.exists(c, c.name == "region" && c.value == "eu")`:                          "",
		`managedCluster.status.conditions.exists(c, c.type.endsWith("Available") && c.status == "True")`:                "",
		`quantity(managedCluster.status.allocatable.memory).isGreaterThan(quantity("8Gi"))`:                             "",
		`quantity(managedCluster.status.allocatable.cpu).compareTo(quantity("4")) < 0`:                                  "",
		`managedCluster.scores("usage").filter(s, s.name == "cpu").all(e, e.value > 0)`:                                 "",
		`managedCluster.scores("usage").exists(s, s.name == "memory" && s.value == -5)`:                                 "",
		`managedCluster.scores("usage").exists(s, has(s.quantity) && quantity(s.quantity).isLessThan(quantity("1Gi")))`: "",
		`managedCluster.scores("old") == [] && managedCluster.scores("unknown") == []`:                                  "",
		`managedCluster.metadata.scores("usage") == []`:                                                                 "scores is a function of managedCluster",
		`managedCluster.scores(dyn(1)) == []`:                                                                           "no such overload",
		`dyn("yes")`:                                                                                                    "it returns a string, and must return a bool",
		`managedCluster.metadata.name`:                                                                                  "it returns a string, and must return a bool",
		`"yes"`:                                                                                                         "it must return a bool",
		`cluster.metadata.name == "c"`:                                                                                  "undeclared reference to 'cluster'",
		`managedCluster.metadata.name == `:                                                                              "Syntax error",
		// What costs too much ends.
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, a+b+c+d+e > 0)))))`: "it costs too much",
	} {
		e, err := compiling(t)(text)
		got := "" // it is true
		if err != nil {
			got = err.Error()
		} else if result := e.evaluate(c, noon.Unix()); result.fault != "" {
			got = result.fault
		} else if !result.matches {
			got = "false"
		}
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestExpressionsAreEvaluatedAgain: only for a cluster that has changed, and when scores that were read expire.
func TestExpressionsAreEvaluatedAgain(t *testing.T) {
	e, err := compiling(t)(`managedCluster.scores("usage").size() > 0`)
	if err != nil {
		t.Fatal(err)
	}
	c, known := describedCluster(), scores{}
	x, object := newClusterIndex(func(string) scores { return maps.Clone(known) }), c.object
	x.observe(object, noon)
	key := types.NamespacedName{Name: "p"}
	r := &rules{reach: mustRules(t, placing()).reach, predicates: []selector{{labels: mustRules(t, placing(predicates(byLabels("env", "prod")))).predicates[0].labels,
		expressions: []*celExpression{e}}}, expressions: []*celExpression{e}}
	x.setRules(key, r)
	evaluate := func(now time.Time) fit { return r.evaluate(x.byName()[0], now).fit }
	if got := evaluate(noon); got != notSelected {
		t.Errorf("without scores: %v", got)
	}
	known = c.scores
	if got := x.scoreChanged("c", noon); len(got) != 1 || evaluate(noon) != eligible {
		t.Errorf("with a score: affects %v, %v", got, evaluate(noon))
	}
	planted := e.results["c"]
	planted.matches = false // is returned as long as nothing is evaluated
	e.results["c"] = planted
	seen := object.DeepCopy()
	seen.Annotations[clusterv1.LastSeenAnnotationKey], seen.ResourceVersion = "later", "2"
	if got := x.observe(seen, noon); len(got) != 0 || evaluate(noon) != notSelected {
		t.Errorf("the cluster is heard from: affects %v, and is evaluated again", got)
	}
	if got := evaluate(noon.Add(59 * time.Second)); got != notSelected {
		t.Errorf("before the scores expire: %v", got)
	}
	changed := seen.DeepCopy()
	changed.Labels["x"] = "y"
	if got := x.observe(changed, noon); len(got) != 1 || evaluate(noon) != eligible {
		t.Errorf("the cluster has changed: affects %v, %v", got, evaluate(noon))
	}
	if got := r.evaluate(x.byName()[0], noon).changes; got != noon.Add(time.Minute).Unix() {
		t.Errorf("changes at %d", got)
	}
	known = nil
	if got := x.scoreChanged("c", noon); len(got) != 1 || evaluate(noon) != notSelected {
		t.Errorf("the scores are deleted: affects %v, %v", got, evaluate(noon))
	}
	known = c.scores
	x.scoreChanged("c", noon)
	if got := evaluate(noon.Add(time.Minute)); got != notSelected {
		t.Errorf("the scores have expired: %v", got)
	}
	x.remove("c", noon)
	if got := x.scoreChanged("c", noon); len(got) != 0 || len(x.byName()) != 0 {
		t.Errorf("the scores of a cluster that is gone affect %v", got)
	}
	if len(e.results) != 0 {
		t.Errorf("a cluster that is gone: %v", e.results)
	}
}

// TestExpressionsThatTakeLong: when a cluster changes, Placements whose expressions there is no time for are reconciled.
func TestExpressionsThatTakeLong(t *testing.T) {
	x := newClusterIndex(scoreless)
	x.setRules(types.NamespacedName{Name: "by-label"}, mustRules(t, placing(predicates(byLabels("env", "prod")))))
	x.setRules(types.NamespacedName{Name: "by-expression"}, mustRules(t, placing(predicates(byExpressions(`managedCluster.metadata.labels.env == "prod"`)))))
	changed := func(region string) []types.NamespacedName {
		return x.observe(accepted("c", labelled("env", "prod", "region", region)).object, noon)
	}
	changed("west")
	x.patience = time.Hour
	if got := changed("east"); len(got) != 0 {
		t.Errorf("another region affects %v", got)
	}
	x.patience = -1
	if got := changed("north"); len(got) != 1 || got[0].Name != "by-expression" {
		t.Errorf("without time, another region affects %v", got)
	}
}

// TestExpressionsAreCompiledOnce: as long as a Placement uses them, whatever else changes.
func TestExpressionsAreCompiledOnce(t *testing.T) {
	c, err := New(configWith(&versioned.Clientset{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	use := func(texts ...string) []*celExpression {
		p := placing(predicates(byExpressions(texts...)))
		r, err := c.rules(controller.KeyOf(p), p)
		if err != nil {
			t.Fatal(err)
		}
		return r.expressions
	}
	first := use("true", "false", "true")
	if again := use("true"); again[0] != first[0] || first[2] != first[0] {
		t.Error("it is compiled again")
	}
	if again := use("false"); again[0] == first[1] {
		t.Error("what was not used is kept")
	}
}

// TestPrepareEnds: the clusters that are evaluated in time are not evaluated again.
func TestPrepareEnds(t *testing.T) {
	r := mustRules(t, placing(predicates(byExpressions(`managedCluster.metadata.name != "b"`))))
	clusters := plain("a b c")
	if now := time.Now(); r.prepare(clusters, noon, now.Add(-time.Second)) {
		t.Error("no time is left")
	}
	if !r.prepare(clusters, noon, time.Now().Add(time.Hour)) || len(r.expressions[0].results) != 3 {
		t.Errorf("an hour is left: %v", r.expressions[0].results)
	}
	if !mustRules(t, placing()).prepare(clusters, noon, time.Now().Add(-time.Second)) {
		t.Error("there are no expressions")
	}
}

// TestFaultOfAnExpression: a cluster for which an expression fails is not selected, and the status says why.
func TestFaultOfAnExpression(t *testing.T) {
	p := placing(predicates(byExpressions(`managedCluster.metadata.labels["gpus"] == "4"`), byLabels("always", "yes")))
	r := mustRules(t, p)
	o := schedule(r, []*cluster{accepted("a"), accepted("b", labelled("gpus", "4")), accepted("c", labelled("always", "yes"))}, nil, noon, unused)
	if text(o.groups) != "b c" {
		t.Errorf("chosen: %s", text(o.groups))
	}
	r.wanted = 3
	want := `other clusters match no predicate; for cluster a, expression "managedCluster.metadata.labels[\"gpus\"] == \"4\"": no such key: gpus`
	if got := scheduledStatus(p, r, &o, nil).Conditions[0].Message; !strings.Contains(got, want) {
		t.Errorf("%s", got)
	}
}

// TestSnippets reads the parts of specs in docs/placement.md, whose first example TestExample applies.
func TestSnippets(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/placement.md")
	if err != nil {
		t.Fatal(err)
	}
	specs, scores := 0, 0
	for _, part := range strings.Split(string(page), "```yaml\n")[2:] {
		text, _, _ := strings.Cut(part, "```")
		p, score := placing(), &clusterv1alpha1.AddOnPlacementScore{}
		if strings.HasPrefix(text, "apiVersion") {
			err = yaml.UnmarshalStrict([]byte(text), score)
			scores++
		} else if err = yaml.UnmarshalStrict([]byte(text), &p.Spec); err == nil {
			_, err = newRules(p, clustersets.Everything(), compiling(t))
			specs++
		}
		if err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
	if specs != 3 || scores != 1 {
		t.Errorf("the page has %d parts of specs and %d scores", specs, scores)
	}
}
