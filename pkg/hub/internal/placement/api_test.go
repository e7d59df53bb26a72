package placement_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1alpha1 "github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
	"github.com/workwire/workwire/test/kit"
)

// misconfigured returns the message of the condition PlacementMisconfigured if it is True.
func (e *env) misconfigured(name string) string {
	e.Helper()
	c := meta.FindStatusCondition(e.placement(name).Status.Conditions, clusterv1beta1.PlacementConditionMisconfigured)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return c.Message
}

// setScore writes a score of a cluster, in the namespace of the cluster.
func (e *env) setScore(name string, value int32, validUntil *metav1.Time) {
	e.Helper()
	namespace := e.namespace + "-" + name
	_, err := kubernetes.NewForConfigOrDie(plane.REST()).CoreV1().Namespaces().Create(e.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	client := e.client.ClusterV1alpha1().AddOnPlacementScores(namespace)
	if err == nil { // else it is there, and so is the object
		_, err = client.Create(e.Context(), &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Name: "usage"}}, metav1.CreateOptions{})
		kit.NoError(e, err)
	}
	kit.Eventually(e, "write the score of "+name, func() error {
		score, err := client.Get(e.Context(), "usage", metav1.GetOptions{})
		if err != nil {
			return err
		}
		score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "cpu", Value: value}}
		score.Status.ValidUntil = validUntil
		_, err = client.UpdateStatus(e.Context(), score, metav1.UpdateOptions{})
		return err
	})
}

// TestPlacementByExpression: expressions on the cluster and its scores select; a wrong one is said, keeps the decisions,
// and stops no other Placement.
func TestPlacementByExpression(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	e.createCluster("old", label("version", "1.29.5"))
	e.createCluster("new", label("version", "1.31.2"))
	byExpressions := func(texts ...string) func(*clusterv1beta1.Placement) {
		return func(p *clusterv1beta1.Placement) {
			p.Spec.Predicates[0].RequiredClusterSelector.CelSelector.CelExpressions = texts
		}
	}
	e.createPlacement("by-version", byExpressions(`semver(managedCluster.metadata.labels["version"]).isGreaterThan(semver("1.30.0"))`))
	e.createPlacement("by-score", byExpressions(`managedCluster.scores("usage").exists(s, s.name == "cpu" && s.value > 0)`))
	e.createPlacement("by-status", byExpressions(`managedCluster.status.version.kubernetes == "v1.36.3"`))
	e.await("by-version", "0/: new")
	e.await("by-score", "0/:")
	e.await("by-status", "0/:")

	c, err := e.client.ClusterV1().ManagedClusters().Get(t.Context(), e.namespace+"-old", metav1.GetOptions{})
	kit.NoError(t, err)
	c.Status.Version = clusterv1.ManagedClusterVersion{Kubernetes: "v1.36.3"}
	_, err = e.client.ClusterV1().ManagedClusters().UpdateStatus(t.Context(), c, metav1.UpdateOptions{})
	kit.NoError(t, err)
	e.await("by-status", "0/: old")
	e.setScore("old", 5, nil)
	e.await("by-score", "0/: old")
	e.setScore("old", -5, nil)
	e.setScore("new", 5, nil)
	e.await("by-score", "0/: new")

	e.updatePlacement("by-version", byExpressions(`managedCluster.metadata.nme ==`))
	kit.True(t, "the wrong expression is named", func() bool {
		return strings.Contains(e.misconfigured("by-version"), `spec.predicates[0].requiredClusterSelector.celSelector.celExpressions[0]: expression "managedCluster.metadata.nme =="`)
	})
	e.createCluster("newest", label("version", "1.40.0"))
	e.setScore("newest", 1, nil)
	e.await("by-score", "0/: new newest")
	e.await("by-version", "0/: new")
	e.updatePlacement("by-version", byExpressions(`managedCluster.metadata.labels["version"] == "1.40.0"`))
	e.await("by-version", "0/: newest")
}

// TestPlacementByScore: the clusters with the highest scores are chosen, as they change and expire.
func TestPlacementByScore(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	for _, name := range []string{"a", "b", "c"} {
		e.createCluster(name)
	}
	e.setScore("b", 50, nil)
	e.createPlacement("best", number(1), func(p *clusterv1beta1.Placement) {
		p.Spec.PrioritizerPolicy = clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact, Configurations: []clusterv1beta1.PrioritizerConfig{
			{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
				AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "cpu"}}},
		}}
	})
	e.await("best", "0/: b")
	e.setScore("c", 60, &metav1.Time{Time: time.Now().Add(3 * time.Second)})
	e.await("best", "0/: c")
	e.await("best", "0/: b") // c's has expired
	e.setScore("b", -1, nil)
	e.await("best", "0/: a") // c's expired score counts as 0, as a's, which is the first

	// What others have chosen is avoided.
	e.createPlacement("other", number(1), func(p *clusterv1beta1.Placement) {
		p.Spec.PrioritizerPolicy = clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact, Configurations: []clusterv1beta1.PrioritizerConfig{
			{Weight: 1, ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerBalance}},
		}}
	})
	touched := 0
	kit.True(t, "it is balanced, once the decision for a is known", func() bool {
		touched++
		e.updatePlacement("other", func(p *clusterv1beta1.Placement) {
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, "touched", strconv.Itoa(touched))
		})
		return e.chosen("other") == "0/: b"
	})
}

// TestPlacementSpread: chosen clusters are distributed over regions, and stay when one of them goes.
func TestPlacementSpread(t *testing.T) {
	e := newEnv(t)
	e.start(nil)
	for _, name := range []string{"e1", "e2", "e3", "w1", "w2"} {
		e.createCluster(name, label("region", name[:1]))
	}
	e.createPlacement("even", number(4), func(p *clusterv1beta1.Placement) {
		p.Spec.SpreadPolicy.SpreadConstraints = []clusterv1beta1.SpreadConstraintsTerm{{
			TopologyKey: "region", TopologyKeyType: clusterv1beta1.TopologyKeyTypeLabel, MaxSkew: 1, WhenUnsatisfiable: clusterv1beta1.DoNotSchedule,
		}}
	})
	e.await("even", "0/: e1 e2 w1 w2")
	e.deleteCluster("e1")
	e.await("even", "0/: e2 e3 w1 w2")
	e.deleteCluster("w1")
	e.deleteCluster("e3")
	e.await("even", "0/: e2 w2")
	e.createCluster("e4", label("region", "e"))
	e.createCluster("e5", label("region", "e"))
	e.await("even", "0/: e2 e4 w2")
	kit.True(t, "the status says why there are no more", func() bool {
		c := meta.FindStatusCondition(e.placement("even").Status.Conditions, clusterv1beta1.PlacementConditionSatisfied)
		return c.Message == "1 cluster decisions unscheduled: other clusters match no predicate, or would exceed the skew of a spread constraint" ||
			c.Message == "1 cluster decisions unscheduled: other clusters would exceed the skew of a spread constraint"
	})
}
