package v1alpha1

import "strconv"

// Labels of a ManifestWorkReplicaSetRevision.
const (
	// ReplicaSetLabelKey labels a revision with the name of its set.
	ReplicaSetLabelKey = "workwire.dev/replicaset"
	// TemplateHashLabelKey labels a revision with the hash of its template.
	TemplateHashLabelKey = "workwire.dev/template-hash"
)

// Annotations of a ManifestWorkReplicaSet about its revisions.
const (
	// RevisionAnnotationKey annotates a set with the number of the revision that its template is. The
	// hub writes it.
	RevisionAnnotationKey = "workwire.dev/revision"
	// RevisionHashAnnotationKey annotates a set with the hash of the template whose revision
	// RevisionAnnotationKey is. The hub writes it.
	RevisionHashAnnotationKey = "workwire.dev/revision-hash"
	// ProvenRevisionAnnotationKey annotates a set that goes back when its rollout fails with the number of the last revision
	// that succeeded everywhere it was. The hub writes it.
	ProvenRevisionAnnotationKey = "workwire.dev/proven-revision"
	// ServedRevisionAnnotationKey annotates a set that has gone back with the number of the revision that clusters receive
	// in place of its template. The hub writes it, and removes it when the template changes; if somebody else removes it,
	// the template of the set is rolled out again.
	ServedRevisionAnnotationKey = "workwire.dev/served-revision"
	// RevisionHistoryLimitAnnotationKey annotates a set with the number of earlier templates that the
	// hub keeps; default 10, at most 100.
	RevisionHistoryLimitAnnotationKey = "workwire.dev/revision-history-limit"
	// ChangeCauseAnnotationKey annotates a set, and so the revisions of its templates, with why it was
	// changed. `kubectl annotate` and `kubectl rollout history` know it.
	ChangeCauseAnnotationKey = "kubernetes.io/change-cause"
)

// RevisionOf returns the number of a revision that an annotation has; 0 if there is none.
func RevisionOf(annotations map[string]string, key string) int64 {
	number, err := strconv.ParseInt(annotations[key], 10, 64)
	if err != nil {
		return 0
	}
	return number
}
