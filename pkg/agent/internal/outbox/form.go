package outbox

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	noValuesMessage    = "The feedback values are left out: with them the status exceeds the broker's maximum packet size"
	noManifestsMessage = "The status of the manifests is left out: with it the status exceeds the broker's maximum packet size"
)

// form is how much of a status is sent.
type form int

const (
	// whole is the complete status.
	whole form = iota
	// withoutValues omits feedback values; a condition of each manifest that had some says so.
	withoutValues
	// conditionsOnly keeps the work's conditions, with truncated messages, and adds one that says
	// that the manifests are omitted.
	conditionsOnly
)

// maxShortMessage is the maximum length in bytes of the messages in conditionsOnly.
const maxShortMessage = 256

// reduce returns status in form f. It does not modify status. The result depends only on status if
// that has a condition, and on now otherwise.
func (f form) reduce(status workv1.ManifestWorkStatus, now time.Time) workv1.ManifestWorkStatus {
	switch f {
	case withoutValues:
		manifests := make([]workv1.ManifestCondition, len(status.ResourceStatus.Manifests))
		for i, m := range status.ResourceStatus.Manifests {
			if len(m.StatusFeedbacks.Values) > 0 {
				m.StatusFeedbacks = workv1.StatusFeedbackResult{}
				m.Conditions = tooLarge(m.Conditions, noValuesMessage, 0, now)
			}
			manifests[i] = m
		}
		status.ResourceStatus.Manifests = manifests
	case conditionsOnly:
		conditions := make([]metav1.Condition, len(status.Conditions))
		generation := int64(0)
		for i, c := range status.Conditions {
			c.Message = condition.Shorten(c.Message, maxShortMessage)
			conditions[i] = c
			generation = max(generation, c.ObservedGeneration)
		}
		conditions, omitted := fewConditions(conditions)
		message := noManifestsMessage
		if omitted > 0 {
			message += fmt.Sprintf("; so are %d conditions of the work", omitted)
		}
		status.Conditions = tooLarge(conditions, message, generation, now)
		status.ResourceStatus = workv1.ManifestResourceStatus{}
	}
	return status
}

// maxConditions is the maximum size in bytes of the conditions that rules set, in conditionsOnly.
const maxConditions = 16 << 10

// fewConditions returns conditions without the last of those that rules set, if they are larger than
// maxConditions, and their number.
func fewConditions(conditions []metav1.Condition) (kept []metav1.Condition, omitted int) {
	size := 0
	for _, c := range conditions {
		if !condition.BuiltIn(c.Type) {
			if size += len(c.Type) + len(c.Reason) + len(c.Message) + conditionOverhead; size > maxConditions {
				omitted++
				continue
			}
		}
		kept = append(kept, c)
	}
	return kept, omitted
}

// conditionOverhead is the size in bytes of the JSON of a condition without its texts.
const conditionOverhead = 150

// tooLarge returns conditions with StatusFeedbackSynced set to False with message. Its transition
// time is that of the condition that it replaces, or else the latest of the other conditions, so
// the result is the same each time.
func tooLarge(conditions []metav1.Condition, message string, generation int64, now time.Time) []metav1.Condition {
	c := metav1.Condition{
		Type:               workv1.ManifestStatusFeedbackSynced,
		Status:             metav1.ConditionFalse,
		ObservedGeneration: generation,
		Reason:             workv1.ReasonStatusTooLarge,
		Message:            message,
	}
	changed := make([]metav1.Condition, len(conditions), len(conditions)+1)
	copy(changed, conditions)
	for i := range changed {
		if changed[i].Type == c.Type {
			c.LastTransitionTime = changed[i].LastTransitionTime
			changed[i] = c
			return changed
		}
		if c.LastTransitionTime.Before(&changed[i].LastTransitionTime) {
			c.LastTransitionTime = changed[i].LastTransitionTime
		}
	}
	if c.LastTransitionTime.IsZero() {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	return append(changed, c)
}

// maxMetadata is the maximum size in bytes of labels and annotations in an event. MQTT carries the
// metadata as one user property of at most 65,535 bytes, with quotes escaped.
const maxMetadata = 24 << 10

func oversized(meta *metav1.ObjectMeta) bool {
	size := 0
	for _, m := range []map[string]string{meta.Labels, meta.Annotations} {
		for k, v := range m {
			size += len(k) + len(v)
		}
	}
	return size > maxMetadata
}

// minimalMeta returns meta with only those labels and annotations that the protocol defines.
func minimalMeta(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.Labels = only(meta.Labels, workv1.OriginalSourceLabelKey)
	meta.Annotations = only(meta.Annotations, workv1.DataTypeAnnotationKey)
	return meta
}

func only(m map[string]string, key string) map[string]string {
	if value, ok := m[key]; ok {
		return map[string]string{key: value}
	}
	return nil
}
