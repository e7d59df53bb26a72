package replicaset

import (
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/controller"
	"github.com/workwire/workwire/pkg/kube"
)

// LabelsAnnotationKey annotates a work with the sorted, comma-separated keys of the labels that it
// has from its set. When a label is removed from the set, it is removed from the work; labels of
// others stay.
const LabelsAnnotationKey = "workwire.dev/replicaset-labels"

// action is an operation on a work.
type action string

const (
	create action = "create" // create the work
	update action = "update" // set the template and the labels
	label  action = "label"  // set only the labels
	remove action = "delete"
)

// change is a write of one work.
type change struct {
	action action
	// work is the stored work or, for create, the new one.
	work *workv1.ManifestWork
	// patch is for update and label.
	patch kube.JSONPatch
}

// newWork returns the work of set for a cluster of a placement.
func newWork(set *workv1alpha1.ManifestWorkReplicaSet, placement, cluster string, now time.Time) *workv1.ManifestWork {
	labels, owned := workLabels(set, placement)
	annotations := templateAnnotations(set, now)
	if owned != "" {
		annotations[LabelsAnnotationKey] = owned
	}
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: WorkName(controller.KeyOf(set), placement), Labels: labels, Annotations: annotations},
		Spec:       set.Spec.ManifestWorkTemplate,
	}
}

// templateAnnotations returns the annotations that a work gets with the template.
func templateAnnotations(set *workv1alpha1.ManifestWorkReplicaSet, now time.Time) map[string]string {
	annotations := map[string]string{workv1alpha1.RolledOutAtAnnotationKey: timestamp(now)}
	if waitsForReadiness(set) {
		annotations[workv1.ReportReadinessAnnotationKey] = "true"
	}
	return annotations
}

// waitsForReadiness reports whether a cluster succeeds only when its objects are ready.
func waitsForReadiness(set *workv1alpha1.ManifestWorkReplicaSet) bool {
	return set.Annotations[workv1alpha1.RolloutSuccessAnnotationKey] != workv1alpha1.RolloutSuccessAvailable
}

// timestamp returns the value of the annotation with the time at which a work received the
// template.
func timestamp(now time.Time) string { return now.UTC().Format(time.RFC3339) }

// updateChange returns the change that sets the template of a work.
func updateChange(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string, now time.Time) change {
	patch, _ := metadataPatch(work, set, placement, templateAnnotations(set, now))
	return change{update, work, append(patch, kube.JSONPatchOperation{Op: "add", Path: "/spec", Value: &set.Spec.ManifestWorkTemplate})}
}

// labelChange returns the change that sets the labels of a work; false if they are up to date.
func labelChange(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string) (change, bool) {
	patch, changed := metadataPatch(work, set, placement, nil)
	return change{label, work, patch}, changed
}

// metadataPatch returns the patch that sets the labels of a work and these annotations. It applies
// only to the work with this UID and preserves labels and annotations of others.
func metadataPatch(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string,
	annotations map[string]string,
) (patch kube.JSONPatch, changed bool) {
	labels, owned := workLabels(set, placement)
	had := strings.FieldsFunc(work.Annotations[LabelsAnnotationKey], func(r rune) bool { return r == ',' })
	had = slices.DeleteFunc(had, func(key string) bool { _, kept := labels[key]; return kept })
	wanted := map[string]string{LabelsAnnotationKey: owned}
	maps.Copy(wanted, annotations)
	var removed []string
	if owned == "" {
		delete(wanted, LabelsAnnotationKey)
		removed = []string{LabelsAnnotationKey}
	}
	if !waitsForReadiness(set) { // a work that has no readiness yet gets it with its next template
		removed = append(removed, workv1.ReportReadinessAnnotationKey)
	}
	patch = kube.JSONPatch{kube.TestUID(work.UID)}
	patch = append(patch, mapPatch("/metadata/labels", work.Labels, labels, had)...)
	patch = append(patch, mapPatch("/metadata/annotations", work.Annotations, wanted, removed)...)
	return patch, len(patch) > 1
}

// mapPatch returns the patch that adds the entries wanted to the map at path, which is stored, and
// removes the keys removed.
func mapPatch(path string, stored, wanted map[string]string, removed []string) kube.JSONPatch {
	if stored == nil && len(wanted) > 0 {
		return kube.JSONPatch{{Op: "add", Path: path, Value: wanted}}
	}
	var patch kube.JSONPatch
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, ok := stored[key]; !ok || value != wanted[key] {
			patch = append(patch, kube.JSONPatchOperation{Op: "add", Path: path + "/" + pointer.Replace(key), Value: wanted[key]})
		}
	}
	for _, key := range removed {
		if _, ok := stored[key]; ok {
			patch = append(patch, kube.JSONPatchOperation{Op: "remove", Path: path + "/" + pointer.Replace(key)})
		}
	}
	return patch
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// workLabels returns the labels of a work, and the value of LabelsAnnotationKey.
func workLabels(set *workv1alpha1.ManifestWorkReplicaSet, placement string) (labels map[string]string, owned string) {
	labels = map[string]string{workv1.ReplicaSetLabelKey: Label(controller.KeyOf(set)), workv1.PlacementNameLabelKey: placement}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(set.Labels)) {
		if _, ours := labels[key]; !ours {
			keys = append(keys, key)
			labels[key] = set.Labels[key]
		}
	}
	return labels, strings.Join(keys, ",")
}
