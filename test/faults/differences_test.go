package faults

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// snapshot is a hub and a cluster with the work "web" of the ConfigMap "web-a", as its model wants
// it.
type snapshot struct {
	works   []workv1.ManifestWork
	objects map[string]*corev1.ConfigMap
	applied map[string]*workv1.AppliedManifestWork
}

func newSnapshot() *snapshot {
	value := "1"
	yes := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 3}
	}
	work := workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 3}}
	work.Status.Conditions = []metav1.Condition{yes(workv1.WorkApplied), yes(workv1.WorkAvailable)}
	work.Status.ResourceStatus.Manifests = []workv1.ManifestCondition{{
		ResourceMeta: workv1.ManifestResourceMeta{Name: "web-a"}, Conditions: []metav1.Condition{yes(workv1.ManifestApplied)},
		StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{{Name: "k", Value: workv1.FieldValue{String: &value}}}},
	}}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web-a", UID: "object"}, Data: map[string]string{"k": value}}
	object.OwnerReferences = []metav1.OwnerReference{{UID: "record"}}
	record := &workv1.AppliedManifestWork{ObjectMeta: metav1.ObjectMeta{UID: "record"}}
	record.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{{UID: "object"}}
	record.Status.AppliedResources[0].Name = "web-a"
	return &snapshot{
		[]workv1.ManifestWork{work}, map[string]*corev1.ConfigMap{"web-a": object}, map[string]*workv1.AppliedManifestWork{"web": record},
	}
}

// TestDifferences has the model find each thing that must not be.
func TestDifferences(t *testing.T) {
	w := &world{model: newModel()}
	w.want["web"] = content{"1", []string{"web-a"}}
	for name, c := range map[string]struct {
		change func(s *snapshot)
		want   string // "": no difference
	}{
		"nothing":        {func(*snapshot) {}, ""},
		"work is lost":   {func(s *snapshot) { s.works = nil }, "works at the hub: ; want web"},
		"work came back": {func(s *snapshot) { s.works = append(s.works, s.works[0]); s.works[1].Name = "old" }, "works at the hub: old, web"},
		"status is old":  {func(s *snapshot) { s.works[0].Generation = 4 }, "web at the hub, generation 4: Applied is"},
		"status is not that of it": {func(s *snapshot) {
			*s.works[0].Status.ResourceStatus.Manifests[0].StatusFeedbacks.Values[0].Value.String = "0"
		}, "web-a feeds back"},
		"status lacks a manifest":  {func(s *snapshot) { s.works[0].Status.ResourceStatus.Manifests = nil }, "0 manifests, want 1"},
		"object is lost":           {func(s *snapshot) { delete(s.objects, "web-a") }, "web-a is not on the cluster"},
		"object is old":            {func(s *snapshot) { s.objects["web-a"].Data["k"] = "0" }, `web-a has "0", want "1"`},
		"object is left over":      {func(s *snapshot) { s.objects["web-b"] = s.objects["web-a"] }, "objects on the cluster: web-a, web-b; want web-a"},
		"object has another owner": {func(s *snapshot) { s.objects["web-a"].OwnerReferences[0].UID = "other" }, "web-a is owned by"},
		"object was replaced":      {func(s *snapshot) { s.objects["web-a"].UID = "other" }, "web-a is recorded as object, is other"},
		"record is lost":           {func(s *snapshot) { s.applied = nil }, "web has no AppliedManifestWork"},
		"record is left over":      {func(s *snapshot) { s.applied["old"] = s.applied["web"] }, "AppliedManifestWorks on the cluster: old, web; want web"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSnapshot()
			c.change(s)
			err := w.differences(s.works, s.objects, s.applied)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
