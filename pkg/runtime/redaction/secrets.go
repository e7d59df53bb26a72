package redaction

import (
	"bytes"
	"encoding/json"
)

// lastApplied is where kubectl apply keeps a copy of an object: [k8s.io/api/core/v1.LastAppliedConfigAnnotation], which would add
// 3 MB to work-broker.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// HideSecrets returns JSON with what shown returns for each value of a Secret in its place, wherever Secrets are: items of a
// SecretList need no kind. It leaves out where appliers keep copies: all annotations of Secrets, and kubectl's of every object.
func HideSecrets(data []byte, shown func(value any) string) ([]byte, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data)) // bounds the nesting
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	hide(value, false, shown)
	return json.Marshal(value)
}

// hide is HideSecrets of decoded JSON; listed has the objects that value is, or lists, as Secrets.
func hide(value any, listed bool, shown func(any) string) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			hide(item, listed, shown)
		}
	case map[string]any:
		metadata, _ := value["metadata"].(map[string]any)
		if listed || value["kind"] == "Secret" {
			hideValues(value, "data", shown)
			hideValues(value, "stringData", shown)
			delete(metadata, "annotations")
		} else if annotations, ok := metadata["annotations"].(map[string]any); ok {
			delete(annotations, lastApplied)
		}
		for key, item := range value {
			hide(item, key == "items" && value["kind"] == "SecretList", shown)
		}
	}
}

func hideValues(secret map[string]any, field string, shown func(any) string) {
	if values, ok := secret[field].(map[string]any); ok {
		for name, value := range values {
			values[name] = shown(value)
		}
	} else if secret[field] != nil {
		secret[field] = shown(secret[field])
	}
}
