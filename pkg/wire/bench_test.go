package wire_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
)

// statusOf gives the status of a work of n manifests, as big as they usually are.
func statusOf(n int) workv1.ManifestWorkStatus {
	at := metav1.Date(2031, 3, 4, 5, 6, 7, 0, time.UTC)
	fine := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, ObservedGeneration: 2, LastTransitionTime: at,
			Reason: reason, Message: "Resource is as it should be"}
	}
	ready := int64(3)
	var status workv1.ManifestWorkStatus
	status.Conditions = []metav1.Condition{fine("Applied", "AppliedManifestWorkComplete"), fine("Available", "ResourcesAvailable")}
	for i := range n {
		status.ResourceStatus.Manifests = append(status.ResourceStatus.Manifests, workv1.ManifestCondition{
			ResourceMeta: workv1.ManifestResourceMeta{Ordinal: int32(i), Group: "apps", Version: "v1", Kind: "Deployment",
				Resource: "deployments", Name: fmt.Sprintf("beam-%d", i), Namespace: "pier"},
			StatusFeedbacks: workv1.StatusFeedbackResult{Values: []workv1.FeedbackValue{
				{Name: "ReadyReplicas", Value: workv1.FieldValue{Type: workv1.Integer, Integer: &ready}}}},
			Conditions: []metav1.Condition{fine("Applied", "AppliedManifestComplete"), fine("Available", "ResourceAvailable"),
				fine("StatusFeedbackSynced", "StatusFeedbackSynced")},
		})
	}
	return status
}

func BenchmarkStatusHash(b *testing.B) {
	status := statusOf(2)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := wire.StatusHash(&status); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, name := range []string{"update", "status"} {
		message := decoded(b, name)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Encode(message, time.UnixMilli(0)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"update", "status"} {
		event := fixture(b, name).event(b)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Decode(event); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
