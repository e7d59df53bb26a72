package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// StatusHash returns the lower-case hex SHA-256 of status as JSON with sorted keys
// (docs/protocol.md, Status hash), without Delivery, which agents do not report. A source with an
// equal hash does not need the status.
func StatusHash(status *workv1.ManifestWorkStatus) (string, error) {
	text, err := hashedText(status)
	if err != nil {
		return "", err
	}
	return hexSHA256(text), nil
}

// hashedText returns the text of which the hash of status is.
func hashedText(status *workv1.ManifestWorkStatus) ([]byte, error) {
	data, err := json.Marshal(sortedStatus(status))
	if err == nil && bytes.Contains(data, []byte(`\ufffd`)) {
		// Bytes that are not UTF-8 are escaped when they are encoded the first time; a source that
		// has decoded them encodes them as a character.
		var read hashedStatus
		if err = json.Unmarshal(data, &read); err == nil {
			data, err = json.Marshal(&read)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	return data, nil
}

// ContentHash returns the lower-case hex SHA-256 of b as the data of a spec event
// (docs/protocol.md, Content hash). It costs one encoding of b.
func ContentHash(b *Bundle) (string, error) {
	data, err := json.Marshal(b)
	if err != nil {
		return "", fmt.Errorf("hash the manifests: %w", err)
	}
	return hexSHA256(data), nil
}

// ContentHashOf returns the [ContentHash] in the event of a spec, empty if it has none.
func ContentHashOf(e cloudevents.Event) string {
	return extensions(e.Extensions()).text(extContentHash)
}

func hexSHA256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// The types below are those of a ManifestWorkStatus with their fields in the order of the JSON
// keys, so that encoding them does not sort. A test compares them with the original types.
type (
	hashedStatus struct {
		Conditions     []hashedCondition    `json:"conditions,omitempty"`
		ResourceStatus hashedResourceStatus `json:"resourceStatus"`
	}
	hashedResourceStatus struct {
		Manifests []hashedManifest `json:"manifests,omitempty"`
	}
	hashedManifest struct {
		Conditions     []hashedCondition `json:"conditions"`
		ResourceMeta   hashedMeta        `json:"resourceMeta"`
		StatusFeedback hashedFeedback    `json:"statusFeedback"`
	}
	hashedMeta struct {
		Group     string `json:"group"`
		Kind      string `json:"kind"`
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
		Ordinal   int32  `json:"ordinal"`
		Resource  string `json:"resource"`
		Version   string `json:"version"`
	}
	hashedFeedback struct {
		Values []hashedValue `json:"values,omitempty"`
	}
	hashedValue struct {
		FieldValue hashedField `json:"fieldValue"`
		Name       string      `json:"name"`
	}
	hashedField struct {
		Boolean *bool            `json:"boolean,omitempty"`
		Integer *int64           `json:"integer,omitempty"`
		JSONRaw *string          `json:"jsonRaw,omitempty"`
		String  *string          `json:"string,omitempty"`
		Type    workv1.ValueType `json:"type"`
	}
	hashedCondition struct {
		LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
		Message            string                 `json:"message"`
		ObservedGeneration int64                  `json:"observedGeneration,omitempty"`
		Reason             string                 `json:"reason"`
		Status             metav1.ConditionStatus `json:"status"`
		Type               string                 `json:"type"`
	}
)

func sortedStatus(status *workv1.ManifestWorkStatus) *hashedStatus {
	sorted := &hashedStatus{Conditions: sortedConditions(status.Conditions)}
	for i := range status.ResourceStatus.Manifests {
		m := &status.ResourceStatus.Manifests[i]
		entry := hashedManifest{
			Conditions: sortedConditions(m.Conditions),
			ResourceMeta: hashedMeta{
				Group: m.ResourceMeta.Group, Kind: m.ResourceMeta.Kind, Name: m.ResourceMeta.Name,
				Namespace: m.ResourceMeta.Namespace, Ordinal: m.ResourceMeta.Ordinal,
				Resource: m.ResourceMeta.Resource, Version: m.ResourceMeta.Version,
			},
		}
		for _, v := range m.StatusFeedbacks.Values {
			entry.StatusFeedback.Values = append(entry.StatusFeedback.Values, hashedValue{
				Name: v.Name,
				FieldValue: hashedField{
					Boolean: v.Value.Boolean, Integer: v.Value.Integer, JSONRaw: v.Value.JsonRaw,
					String: v.Value.String, Type: v.Value.Type,
				},
			})
		}
		sorted.ResourceStatus.Manifests = append(sorted.ResourceStatus.Manifests, entry)
	}
	return sorted
}

// sortedConditions returns nil for nil, which is encoded differently from an empty list.
func sortedConditions(conditions []metav1.Condition) []hashedCondition {
	if conditions == nil {
		return nil
	}
	sorted := make([]hashedCondition, len(conditions))
	for i := range conditions {
		c := &conditions[i]
		sorted[i] = hashedCondition{
			LastTransitionTime: c.LastTransitionTime, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
			Reason: c.Reason, Status: c.Status, Type: c.Type,
		}
	}
	return sorted
}
