package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// A status shows every count that people know, also those that are 0, and no others.
func TestStatusText(t *testing.T) {
	status := workv1alpha1.ManifestWorkReplicaSetStatus{
		Summary: workv1alpha1.ManifestWorkReplicaSetSummary{Total: 20, Available: 20, Applied: 20},
		PlacementsSummary: []workv1alpha1.PlacementSummary{{
			Name: "p", AvailableDecisionGroups: "3 (20 / 30 clusters applied)",
			Summary: workv1alpha1.ManifestWorkReplicaSetSummary{Progressing: 1, Degraded: 2},
		}},
	}
	got, err := json.Marshal(status.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"summary":{"total":20,"available":20,"progressing":0,"degraded":0,"applied":20},` +
		`"placementSummary":[{"name":"p","availableDecisionGroups":"3 (20 / 30 clusters applied)",` +
		`"summary":{"total":0,"available":0,"progressing":1,"degraded":2,"applied":0}}]}`
	if string(got) != want {
		t.Errorf("status:\n got %s\nwant %s", got, want)
	}
	set := workv1alpha1.ManifestWorkReplicaSet{Spec: workv1alpha1.ManifestWorkReplicaSetSpec{
		PlacementRefs: []workv1alpha1.LocalPlacementReference{{Name: "p"}}, CascadeDeletionPolicy: workv1alpha1.Foreground,
	}}
	got, err = json.Marshal(set)
	want = `{"metadata":{},"spec":{"manifestWorkTemplate":{"workload":{}},"placementRefs":[{"name":"p"}],` +
		`"cascadeDeletionPolicy":"Foreground"}}`
	if err != nil || string(got) != want {
		t.Errorf("set (%v):\n got %s\nwant %s", err, got, want)
	}
}

func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := workv1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for kind, object := range map[string]runtime.Object{
		"ManifestWorkReplicaSet":     &workv1alpha1.ManifestWorkReplicaSet{},
		"ManifestWorkReplicaSetList": &workv1alpha1.ManifestWorkReplicaSetList{},
	} {
		kinds, _, err := scheme.ObjectKinds(object)
		if want := workv1alpha1.GroupVersion.WithKind(kind); err != nil || len(kinds) != 1 || kinds[0] != want {
			t.Errorf("kinds of %T are %v (%v), want %v", object, kinds, err, want)
		}
	}
}
