package replicaset

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/controller"
	"github.com/workwire/workwire/pkg/hub/internal/rollout"
	"github.com/workwire/workwire/pkg/runtime/kube"
	"github.com/workwire/workwire/pkg/workstate"
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
	// metadata and template are what an update gives to the work.
	metadata metadata
	template *workv1.ManifestWorkSpec
}

// newWork returns the work of set for a cluster of a placement, which is applied at once if applyAt is empty.
func newWork(set *workv1alpha1.ManifestWorkReplicaSet, placement, cluster, applyAt string, now time.Time) *workv1.ManifestWork {
	m := metadataOf(set, placement, templateAnnotations(set, now)).withApplyAt(applyAt)
	return &workv1.ManifestWork{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: workv1alpha1.WorkName(controller.KeyOf(set), placement), Labels: m.labels, Annotations: m.annotations},
		Spec:       set.Spec.ManifestWorkTemplate,
	}
}

// templateAnnotations returns the annotations that a work gets with the template.
func templateAnnotations(set *workv1alpha1.ManifestWorkReplicaSet, now time.Time) map[string]string {
	return map[string]string{
		workv1alpha1.RolledOutAtAnnotationKey: timestamp(now), workv1.ReportReadinessAnnotationKey: strconv.FormatBool(waitsForReadiness(set)),
	}
}

// waitsForReadiness reports whether a cluster succeeds only when its objects are ready.
func waitsForReadiness(set *workv1alpha1.ManifestWorkReplicaSet) bool {
	return set.Annotations[workv1alpha1.RolloutSuccessAnnotationKey] != workv1alpha1.RolloutSuccessAvailable
}

// timestamp returns the value of the annotation with the time at which a work received the
// template.
func timestamp(now time.Time) string { return now.UTC().Format(time.RFC3339) }

// updateChange returns the change that sets the template of a work, which is applied at once if applyAt is empty.
func updateChange(work *workv1.ManifestWork, set *workv1alpha1.ManifestWorkReplicaSet, placement, applyAt string, now time.Time) change {
	m, template := metadataOf(set, placement, templateAnnotations(set, now)).withApplyAt(applyAt), &set.Spec.ManifestWorkTemplate
	c := guarded(update, work, append(m.patch(work), kube.JSONPatchOperation{Op: "add", Path: "/spec", Value: template}))
	c.metadata, c.template = m, template
	return c
}

// labelChange returns the change that gives a work the metadata of its set; false if it has it.
func labelChange(work *workv1.ManifestWork, m metadata) (change, bool) {
	patch := m.patch(work)
	if len(patch) == 0 {
		return change{}, false
	}
	return guarded(label, work, patch), true
}

// guarded returns a change of a work by a patch that applies only to the work with its UID.
func guarded(action action, work *workv1.ManifestWork, patch kube.JSONPatch) change {
	return change{action: action, work: work, patch: append(kube.JSONPatch{kube.TestUID(work.UID)}, patch...)}
}

// next returns the work after an update, without its status.
func (c change) next() *workv1.ManifestWork {
	next := &workv1.ManifestWork{ObjectMeta: c.work.ObjectMeta, Spec: *c.template}
	next.Labels = merged(next.Labels, c.metadata.labels, c.metadata.dropped(c.work))
	next.Annotations = merged(next.Annotations, c.metadata.annotations, c.metadata.removed)
	return next
}

// merged returns the entries stored and wanted without the keys removed.
func merged(stored, wanted map[string]string, removed []string) map[string]string {
	all := make(map[string]string, len(stored)+len(wanted))
	maps.Copy(all, stored)
	for _, key := range removed {
		delete(all, key)
	}
	maps.Copy(all, wanted)
	return all
}

// metadata is what the works of a placement have from their set.
type metadata struct {
	labels      map[string]string
	owned       string // the value of LabelsAnnotationKey
	annotations map[string]string
	removed     []string // annotations
}

// metadataOf returns the metadata of the works of a placement, with these annotations.
func metadataOf(set *workv1alpha1.ManifestWorkReplicaSet, placement string, annotations map[string]string) metadata {
	m := metadata{annotations: make(map[string]string, len(annotations)+1)}
	m.labels, m.owned = workLabels(set, placement)
	maps.Copy(m.annotations, annotations)
	if m.owned != "" {
		m.annotations[LabelsAnnotationKey] = m.owned
	} else {
		m.removed = append(m.removed, LabelsAnnotationKey)
	}
	if on, ok := set.Annotations[workv1.DependsOnAnnotationKey]; ok {
		m.annotations[workv1.DependsOnAnnotationKey] = on
	} else {
		m.removed = append(m.removed, workv1.DependsOnAnnotationKey)
	}
	if !waitsForReadiness(set) { // at once; to be asked for readiness a work waits for its next template
		m.annotations[workv1.ReportReadinessAnnotationKey] = "false"
	}
	return m
}

// withApplyAt returns m with a value of the annotation [workv1.ApplyAtAnnotationKey]; empty: without it.
func (m metadata) withApplyAt(value string) metadata {
	if value == "" {
		m.removed = append(slices.Clip(m.removed), workv1.ApplyAtAnnotationKey)
		return m
	}
	m.annotations = maps.Clone(m.annotations)
	m.annotations[workv1.ApplyAtAnnotationKey] = value
	return m
}

// unstarted returns m for a work that does not receive the template now: if its cluster would apply what it has later, it is told not to,
// and once it has applied that, the time is removed. With unknown, nobody knows yet who starts.
func (m metadata) unstarted(work *workv1.ManifestWork, unknown bool, now time.Time) metadata {
	if work.Annotations[workv1.ApplyAtAnnotationKey] == "" {
		return m
	}
	at, err := workv1.ApplyAtOf(work)
	applied := workstate.Current(work, workv1.WorkApplied)
	switch {
	case applied != nil && applied.Status == metav1.ConditionTrue: // deadlines go on counting from when it was
		if _, at := rollout.StagedOf(work, false, now); !at.Start.IsZero() && timestamp(at.Start) > work.Annotations[workv1alpha1.RolledOutAtAnnotationKey] {
			m.annotations = maps.Clone(m.annotations)
			m.annotations[workv1alpha1.RolledOutAtAnnotationKey] = timestamp(at.Start)
		}
		return m.withApplyAt("")
	case err == nil && !unknown && now.Before(at.Start):
		return m.withApplyAt(workv1.ApplyAtHeld)
	}
	return m
}

// patch returns what gives work the metadata, empty if it has it. Labels and annotations of others stay. Without
// changes it allocates nothing: it is called for each work of a set.
func (m metadata) patch(work *workv1.ManifestWork) kube.JSONPatch {
	return append(mapPatch("/metadata/labels", work.Labels, m.labels, m.dropped(work)),
		mapPatch("/metadata/annotations", work.Annotations, m.annotations, m.removed)...)
}

// dropped returns the labels that work had from its set, and that the set has no longer.
func (m metadata) dropped(work *workv1.ManifestWork) []string {
	had := work.Annotations[LabelsAnnotationKey]
	if had == m.owned {
		return nil
	}
	labels := strings.FieldsFunc(had, func(r rune) bool { return r == ',' })
	return slices.DeleteFunc(labels, func(key string) bool { _, kept := m.labels[key]; return kept })
}

// mapPatch returns the patch that adds the entries wanted to the map at path, which is stored, and
// removes the keys removed.
func mapPatch(path string, stored, wanted map[string]string, removed []string) kube.JSONPatch {
	if stored == nil && len(wanted) > 0 {
		return kube.JSONPatch{{Op: "add", Path: path, Value: wanted}}
	}
	var added []string
	for key, value := range wanted {
		if has, ok := stored[key]; !ok || has != value {
			added = append(added, key)
		}
	}
	slices.Sort(added)
	var patch kube.JSONPatch
	for _, key := range added {
		patch = append(patch, kube.JSONPatchOperation{Op: "add", Path: path + "/" + pointer.Replace(key), Value: wanted[key]})
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
	labels = map[string]string{workv1.ReplicaSetLabelKey: workv1alpha1.WorkLabel(controller.KeyOf(set)), workv1.PlacementNameLabelKey: placement}
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(set.Labels)) {
		if _, ours := labels[key]; !ours {
			keys = append(keys, key)
			labels[key] = set.Labels[key]
		}
	}
	return labels, strings.Join(keys, ",")
}
