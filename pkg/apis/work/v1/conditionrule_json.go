package v1

import (
	"bytes"
	"encoding/json"

	kubejson "k8s.io/apimachinery/pkg/util/json"
)

// CelExpressions are the texts of expressions.
// +kubebuilder:validation:items:Type=""
// +kubebuilder:validation:items:XPreserveUnknownFields
type CelExpressions []string

// UnmarshalJSON decodes items that are strings, or objects that hold the string in their field
// expression: both forms are in use, and both become strings. Any other item becomes its own JSON
// text: as a CEL literal it is not a bool, so that the rule reports the error. An error here would
// make the whole list of works unreadable.
func (e *CelExpressions) UnmarshalJSON(data []byte) error {
	var items []json.RawMessage
	if err := kubejson.Unmarshal(data, &items); err != nil {
		return err
	}
	*e = nil
	for _, item := range items {
		*e = append(*e, celExpression(item))
	}
	return nil
}

func celExpression(item json.RawMessage) string {
	var text string
	if json.Unmarshal(item, &text) == nil && !bytes.Equal(item, []byte("null")) {
		return text
	}
	var object struct {
		Expression *string `json:"expression"`
	}
	if kubejson.Unmarshal(item, &object) == nil && object.Expression != nil {
		return *object.Expression
	}
	return string(item)
}
