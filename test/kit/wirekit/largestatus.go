package wirekit

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// LargeStatus returns the status of a work with n Deployments, as agents report it, with a feedback
// value of each: 700 bytes a Deployment.
func LargeStatus(n int) workv1.ManifestWorkStatus {
	at := metav1.Unix(1_900_000_000, 0)
	condition := func(kind, reason, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: at}
	}
	s := workv1.ManifestWorkStatus{Conditions: []metav1.Condition{
		condition("Applied", "AppliedManifestWorkComplete", "Apply manifest work complete"),
		condition("Available", "ResourcesAvailable", "All resources are available"),
	}}
	for i := range n {
		ready := int64(3)
		s.ResourceStatus.Manifests = append(s.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{
				Ordinal: int32(i), Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: fmt.Sprintf("web-%d", i),
			},
			Conditions: []metav1.Condition{
				condition("Applied", "AppliedManifestComplete", "Apply manifest complete"),
				condition("Available", "ResourceAvailable", "Resource is available"),
				condition("StatusFeedbackSynced", "StatusFeedbackSynced", ""),
			},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "readyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &ready}},
			}},
		})
	}
	return s
}
