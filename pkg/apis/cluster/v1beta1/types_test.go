package v1beta1_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	clusterv1 "github.com/workwire/workwire/pkg/apis/cluster/v1"
	clusterv1beta1 "github.com/workwire/workwire/pkg/apis/cluster/v1beta1"
)

// Every field of a placement, under the name that users write.
func TestPlacementText(t *testing.T) {
	number, seconds := int32(0), int64(0)
	labels := metav1.LabelSelector{MatchLabels: map[string]string{"region": "west"}}
	claims := clusterv1beta1.ClusterClaimSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "id.k8s.io", Operator: metav1.LabelSelectorOpExists},
	}}
	placement := clusterv1beta1.Placement{
		Spec: clusterv1beta1.PlacementSpec{
			ClusterSets: []string{"shops"}, NumberOfClusters: &number,
			Predicates: []clusterv1beta1.ClusterPredicate{{
				RequiredClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: labels, ClaimSelector: claims,
					CelSelector: clusterv1beta1.ClusterCelSelector{CelExpressions: []string{"true"}}},
			}},
			PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{
				Mode: clusterv1beta1.PrioritizerPolicyModeExact, Configurations: []clusterv1beta1.PrioritizerConfig{
					{ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{BuiltIn: clusterv1beta1.PrioritizerSteady}},
					{ScoreCoordinate: &clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
						AddOn: &clusterv1beta1.AddOnScore{ResourceName: "usage", ScoreName: "cpu"}}, Weight: -10},
				},
			},
			SpreadPolicy: clusterv1beta1.SpreadPolicy{SpreadConstraints: []clusterv1beta1.SpreadConstraintsTerm{{
				TopologyKey: "region", TopologyKeyType: clusterv1beta1.TopologyKeyTypeClaim, MaxSkew: 2, WhenUnsatisfiable: clusterv1beta1.DoNotSchedule,
			}}},
			Tolerations: []clusterv1beta1.Toleration{{
				Key: "gpu", Operator: clusterv1beta1.TolerationOpEqual, Value: "true",
				Effect: clusterv1.TaintEffectNoSelect, TolerationSeconds: &seconds,
			}},
			DecisionStrategy: clusterv1beta1.DecisionStrategy{GroupStrategy: clusterv1beta1.GroupStrategy{
				DecisionGroups: []clusterv1beta1.DecisionGroup{{
					GroupName: "west", ClusterSelector: clusterv1beta1.ClusterSelector{LabelSelector: labels},
				}},
				ClustersPerDecisionGroup: intstr.FromString("10%"),
			}},
		},
		Status: clusterv1beta1.PlacementStatus{
			DecisionGroups: []clusterv1beta1.DecisionGroupStatus{{Decisions: []string{"p-decision-1"}, ClustersCount: 1}},
		},
	}
	got, err := json.Marshal(placement.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{},"spec":{"clusterSets":["shops"],"numberOfClusters":0,` +
		`"predicates":[{"requiredClusterSelector":{"labelSelector":{"matchLabels":{"region":"west"}},` +
		`"claimSelector":{"matchExpressions":[{"key":"id.k8s.io","operator":"Exists"}]},"celSelector":{"celExpressions":["true"]}}}],` +
		`"prioritizerPolicy":{"mode":"Exact","configurations":[{"scoreCoordinate":{"builtIn":"Steady"},"weight":0},` +
		`{"scoreCoordinate":{"type":"AddOn","addOn":{"resourceName":"usage","scoreName":"cpu"}},"weight":-10}]},` +
		`"spreadPolicy":{"spreadConstraints":[{"topologyKey":"region","topologyKeyType":"Claim","maxSkew":2,"whenUnsatisfiable":"DoNotSchedule"}]},` +
		`"tolerations":[{"key":"gpu","operator":"Equal","value":"true","effect":"NoSelect","tolerationSeconds":0}],` +
		`"decisionStrategy":{"groupStrategy":{"decisionGroups":[{"groupName":"west",` +
		`"groupClusterSelector":{"labelSelector":{"matchLabels":{"region":"west"}}}}],` +
		`"clustersPerDecisionGroup":"10%"}}},` +
		`"status":{"numberOfSelectedClusters":0,"decisionGroups":[{"decisionGroupIndex":0,"decisionGroupName":"",` +
		`"decisions":["p-decision-1"],"clusterCount":1}]}}`
	if string(got) != want {
		t.Errorf("Placement:\n got %s\nwant %s", got, want)
	}
	var back clusterv1beta1.Placement
	if err := kubejson.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(placement, back); diff != "" {
		t.Errorf("Placement read back (-want +got):\n%s", diff)
	}
}

func TestEmptyText(t *testing.T) {
	for want, object := range map[string]any{
		`{"metadata":{}}`: clusterv1beta1.Placement{},
		`{"metadata":{},"status":{"decisions":[{"clusterName":"cluster1","reason":""}]}}`: clusterv1beta1.PlacementDecision{
			Status: clusterv1beta1.PlacementDecisionStatus{
				Decisions: []clusterv1beta1.ClusterDecision{{ClusterName: "cluster1"}},
			},
		},
	} {
		if got, err := json.Marshal(object); err != nil || string(got) != want {
			t.Errorf("got %s (%v), want %s", got, err, want)
		}
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clusterv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]runtime.Object{
		"Placement": &clusterv1beta1.Placement{}, "PlacementList": &clusterv1beta1.PlacementList{},
		"PlacementDecision":     &clusterv1beta1.PlacementDecision{},
		"PlacementDecisionList": &clusterv1beta1.PlacementDecisionList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if want := clusterv1beta1.GroupVersion.WithKind(kind); err != nil || len(kinds) != 1 || kinds[0] != want {
			t.Errorf("kinds of %T are %v (%v), want %v", object, kinds, err, want)
		}
	}
}
