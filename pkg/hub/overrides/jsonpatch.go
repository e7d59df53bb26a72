package overrides

import (
	"encoding/json"
	"errors"
	"fmt"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	workwirev1alpha1 "github.com/workwire/workwire/pkg/apis/workwire/v1alpha1"
)

// operate applies one operation of a JSON patch. One at a time, so that a patch that copies a value into itself
// again and again ends at the first result that is too large.
func operate(raw []byte, o *workwirev1alpha1.OverrideOperation, operand []byte) (_ []byte, err error) {
	defer recovered(&err)
	fields := map[string]any{"op": o.Op, "path": o.Path}
	if o.From != "" {
		fields["from"] = o.From
	}
	if operand != nil {
		fields["value"] = json.RawMessage(operand)
	}
	text, err := json.Marshal([]any{fields})
	if err != nil {
		return nil, errors.New("the value is no JSON")
	}
	patch, err := jsonpatch.DecodePatch(text)
	if err != nil {
		return nil, errors.New("the operation is no JSON patch")
	}
	result, err := patch.Apply(raw)
	if err != nil {
		return nil, firstLine(err)
	}
	return result, nil
}

// merge applies a merge patch.
func merge(raw, operand []byte) (_ []byte, err error) {
	defer recovered(&err)
	var object map[string]json.RawMessage
	if err := json.Unmarshal(operand, &object); err != nil || object == nil {
		return nil, errors.New("a merge patch must be an object")
	}
	result, err := jsonpatch.MergePatch(raw, operand)
	if err != nil {
		return nil, errors.New("the merge patch does not apply")
	}
	return result, nil
}

// recovered turns a panic of the library into an error: what it is given nobody vouches for.
func recovered(err *error) {
	if panicked := recover(); panicked != nil {
		*err = fmt.Errorf("the patch does not apply: internal error")
	}
}
