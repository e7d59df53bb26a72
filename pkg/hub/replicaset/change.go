package replicaset

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
)

// LabelsAnnotationKey annotates a work with the keys of the labels that it has
// from its set, in order, with commas between them, so that they go with those of
// the set and others stay.
const LabelsAnnotationKey = "workwire.dev/replicaset-labels"

// action is what is done to a work.
type action string

const (
	create action = "create" // make it
	update action = "update" // give it the template, and its labels
	label  action = "label"  // only give it its labels
	remove action = "delete"
)

// change is one work to write.
type change struct {
	action action
	// work as it is or, to create it, as it shall be.
	work *workv1.ManifestWork
	// patch makes of it what it shall be (update and label).
	patch []operation
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func encode(patch []operation) ([]byte, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	return data, nil
}

// newWork is the work of set for a cluster of placement.
func newWork(set *workv1alpha1.ManifestWorkReplicaSet, placement, cluster string, now time.Time) *workv1.ManifestWork {
	labels, owned := labelsOf(set, placement)
	annotations := map[string]string{workv1alpha1.RolledOutAtAnnotationKey: timestamp(now)}
	if owned != "" {
		annotations[LabelsAnnotationKey] = owned
	}
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: WorkName(nameOf(set), placement), Labels: labels, Annotations: annotations},
		Spec:       set.Spec.ManifestWorkTemplate,
	}
}

// timestamp is the value of the annotation that says when a work got the
// template.
func timestamp(now time.Time) string { return now.UTC().Format(time.RFC3339) }

// updateOf brings a work to the template now.
func updateOf(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string, now time.Time) change {
	patch, _ := metadataPatch(work, set, placement, map[string]string{
		workv1alpha1.RolledOutAtAnnotationKey: timestamp(now),
	})
	return change{update, work, append(patch, operation{"add", "/spec", &set.Spec.ManifestWorkTemplate})}
}

// labelOf brings a work's labels to what they shall be; false when they are.
func labelOf(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string) (change, bool) {
	patch, changed := metadataPatch(work, set, placement, nil)
	return change{label, work, patch}, changed
}

// metadataPatch gives a work the labels of its set and these annotations. It is
// for the work with this UID only, and leaves alone what others have put there.
func metadataPatch(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement string,
	annotations map[string]string,
) (patch []operation, changed bool) {
	labels, owned := labelsOf(set, placement)
	had := strings.FieldsFunc(work.Annotations[LabelsAnnotationKey], func(r rune) bool { return r == ',' })
	had = slices.DeleteFunc(had, func(key string) bool { _, kept := labels[key]; return kept })
	wanted := map[string]string{LabelsAnnotationKey: owned}
	maps.Copy(wanted, annotations)
	var gone []string
	if owned == "" {
		delete(wanted, LabelsAnnotationKey)
		gone = []string{LabelsAnnotationKey}
	}
	patch = []operation{{"test", "/metadata/uid", work.UID}}
	patch = append(patch, mapPatch("/metadata/labels", work.Labels, labels, had)...)
	patch = append(patch, mapPatch("/metadata/annotations", work.Annotations, wanted, gone)...)
	return patch, len(patch) > 1
}

// mapPatch puts what is wanted into the map at path, which is as it is, and takes
// the gone keys away.
func mapPatch(path string, is, wanted map[string]string, gone []string) []operation {
	if is == nil && len(wanted) > 0 {
		return []operation{{"add", path, wanted}}
	}
	var patch []operation
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, ok := is[key]; !ok || value != wanted[key] {
			patch = append(patch, operation{"add", path + "/" + pointer.Replace(key), wanted[key]})
		}
	}
	for _, key := range gone {
		if _, ok := is[key]; ok {
			patch = append(patch, operation{Op: "remove", Path: path + "/" + pointer.Replace(key)})
		}
	}
	return patch
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// labelsOf gives the labels of a work, and the keys of those of its set as in the
// annotation.
func labelsOf(set *workv1alpha1.ManifestWorkReplicaSet, placement string) (labels map[string]string, owned string) {
	labels = map[string]string{workv1.ReplicaSetLabelKey: Label(nameOf(set)), workv1.PlacementNameLabelKey: placement}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(set.Labels)) {
		if _, ours := labels[key]; !ours {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		labels[key] = set.Labels[key]
	}
	return labels, strings.Join(keys, ",")
}

// releasePatch takes the finalizer, and no other, from set; nil when it has none.
func releasePatch(set *workv1alpha1.ManifestWorkReplicaSet) []operation {
	index := slices.Index(set.Finalizers, workv1alpha1.ManifestWorkReplicaSetFinalizer)
	if index < 0 {
		return nil
	}
	path := fmt.Sprintf("/metadata/finalizers/%d", index)
	return []operation{
		{"test", "/metadata/uid", set.UID},
		{"test", path, workv1alpha1.ManifestWorkReplicaSetFinalizer},
		{Op: "remove", Path: path},
	}
}

// statusPatch makes status that of set. (A uid in a merge patch would not do: API
// servers ignore all metadata in a patch of a custom resource's status.)
func statusPatch(set *workv1alpha1.ManifestWorkReplicaSet, status *workv1alpha1.ManifestWorkReplicaSetStatus) []operation {
	return []operation{{"test", "/metadata/uid", set.UID}, {"add", "/status", status}}
}
