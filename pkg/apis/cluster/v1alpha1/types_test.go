package v1alpha1_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubejson "k8s.io/apimachinery/pkg/util/json"

	"github.com/workwire/workwire/pkg/apis/cluster/v1alpha1"
)

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]runtime.Object{
		"AddOnPlacementScore": &v1alpha1.AddOnPlacementScore{}, "AddOnPlacementScoreList": &v1alpha1.AddOnPlacementScoreList{},
		"ClusterClaim": &v1alpha1.ClusterClaim{}, "ClusterClaimList": &v1alpha1.ClusterClaimList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if want := v1alpha1.GroupVersion.WithKind(kind); err != nil || len(kinds) != 1 || kinds[0] != want {
			t.Errorf("kinds of %T are %v (%v), want %v", object, kinds, err, want)
		}
	}
}

func TestKind(t *testing.T) {
	tests := map[string]struct {
		json string
		want v1alpha1.RolloutType
	}{
		"absent":      {`{}`, v1alpha1.All},
		"rolloutType": {`{"rolloutType":"Progressive"}`, v1alpha1.Progressive},
		"type":        {`{"type":"ProgressivePerGroup"}`, v1alpha1.ProgressivePerGroup},
		"both":        {`{"type":"Progressive","rolloutType":"Progressive"}`, v1alpha1.Progressive},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var strategy v1alpha1.RolloutStrategy
			if err := kubejson.Unmarshal([]byte(test.json), &strategy); err != nil {
				t.Fatal(err)
			}
			if got := strategy.Kind(); got != test.want {
				t.Errorf("Kind is %s, want %s", got, test.want)
			}
			// The spelling stays that of the author: both have to be kept apart in what is managed by whom.
			again, err := json.Marshal(strategy)
			if err != nil {
				t.Fatal(err)
			}
			var before, after map[string]any
			if json.Unmarshal([]byte(test.json), &before) != nil || json.Unmarshal(again, &after) != nil {
				t.Fatal("no JSON")
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("written back (-read +written):\n%s", diff)
			}
		})
	}
}

// Every field of a strategy, under the name that users write.
func TestStrategyText(t *testing.T) {
	config := v1alpha1.RolloutConfig{
		MinSuccessTime:   metav1.Duration{Duration: 5 * time.Minute},
		ProgressDeadline: "10m", MaxFailures: intstr.FromString("5%"),
	}
	groups := v1alpha1.MandatoryDecisionGroups{MandatoryDecisionGroups: []v1alpha1.MandatoryDecisionGroup{
		{GroupName: "west"}, {GroupIndex: 1}, {},
	}}
	strategy := v1alpha1.RolloutStrategy{
		RolloutType: v1alpha1.All, Type: v1alpha1.All,
		All: &v1alpha1.RolloutAll{RolloutConfig: v1alpha1.RolloutConfig{ProgressDeadline: v1alpha1.NoDeadline}},
		Progressive: &v1alpha1.RolloutProgressive{
			RolloutConfig: config, MandatoryDecisionGroups: groups, MaxConcurrency: intstr.FromInt32(3),
		},
		ProgressivePerGroup: &v1alpha1.RolloutProgressivePerGroup{RolloutConfig: config, MandatoryDecisionGroups: groups},
	}
	got, err := json.Marshal(strategy.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	options := `"minSuccessTime":"5m0s","progressDeadline":"10m","maxFailures":"5%",` +
		`"mandatoryDecisionGroups":[{"groupName":"west"},{"groupIndex":1},{}]`
	want := `{"rolloutType":"All","type":"All","all":{"progressDeadline":"None"},` +
		`"progressive":{` + options + `,"maxConcurrency":3},"progressivePerGroup":{` + options + `}}`
	if string(got) != want {
		t.Errorf("strategy:\n got %s\nwant %s", got, want)
	}
	var back v1alpha1.RolloutStrategy
	if err := kubejson.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strategy, back); diff != "" {
		t.Errorf("strategy read back (-want +got):\n%s", diff)
	}
	if empty, err := json.Marshal(v1alpha1.RolloutStrategy{Progressive: &v1alpha1.RolloutProgressive{}}); err != nil ||
		string(empty) != `{"progressive":{}}` {
		t.Errorf("what is not set is written: %s, %v", empty, err)
	}
}
