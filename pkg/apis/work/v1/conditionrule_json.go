package v1

import (
	"bytes"
	"encoding/json"

	kubejson "k8s.io/apimachinery/pkg/util/json"
)

// UnmarshalJSON decodes a rule whose celExpressions are strings, or objects that hold the string in
// their field expression: both forms are in use, and both become strings. Any other item becomes
// its own JSON text: as a CEL literal it is not a bool, so that the rule reports the error. An
// error here would make the whole list of works unreadable.
func (r *ConditionRule) UnmarshalJSON(data []byte) error {
	type fields ConditionRule // without this method
	in := struct {
		*fields        `json:",inline"`
		CelExpressions []json.RawMessage `json:"celExpressions"`
	}{fields: (*fields)(r)}

	*r = ConditionRule{}
	if err := kubejson.Unmarshal(data, &in); err != nil {
		return err
	}
	for _, item := range in.CelExpressions {
		r.CelExpressions = append(r.CelExpressions, celExpression(item))
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
