package v1alpha1

import (
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApprovalsAnnotationKey annotates a ManifestWorkReplicaSet with what somebody has approved of its rollout, as a JSON list of
// [Approval]. `workctl rollout approve` writes it. Whoever may update the set may approve: By is what they say of
// themselves, and the audit log of the API server says who wrote it.
const ApprovalsAnnotationKey = "workwire.dev/approvals"

// PreviewStage is the Stage of an approval of a preview, before any cluster receives the revision.
const PreviewStage = "preview"

// Approval is that somebody has approved a stage of the rollout of one revision of a set.
type Approval struct {
	// Revision is the number of the revision.
	Revision int64 `json:"revision"`
	// Stage is the name of the stage, or [PreviewStage].
	Stage string `json:"stage"`
	// By is the user.
	By string `json:"by,omitempty"`
	// Reason is why, in the words of the user.
	Reason string `json:"reason,omitempty"`
	// Time is when.
	Time metav1.Time `json:"time"`
}

// Approvals are what somebody has approved of the rollout of a set.
type Approvals []Approval

// ApprovalsOf returns the approvals in the annotations of a set. It fails if [ApprovalsAnnotationKey] is no list of
// approvals.
func ApprovalsOf(annotations map[string]string) (Approvals, error) {
	value := annotations[ApprovalsAnnotationKey]
	if value == "" {
		return nil, nil
	}
	var list Approvals
	if err := json.Unmarshal([]byte(value), &list); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", ApprovalsAnnotationKey, err)
	}
	return list, nil
}

// Of returns the approval of a stage of a revision; nil if there is none.
func (a Approvals) Of(revision int64, stage string) *Approval {
	for i := range a {
		if a[i].Revision == revision && a[i].Stage == stage {
			return &a[i]
		}
	}
	return nil
}
