package workstate

import (
	"fmt"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Value returns a feedback value: an int64, a string, with JSON if it is raw, or a bool; nil if it has none.
func Value(v workv1.FieldValue) any {
	switch {
	case v.Integer != nil:
		return *v.Integer
	case v.String != nil:
		return *v.String
	case v.Boolean != nil:
		return *v.Boolean
	case v.JsonRaw != nil:
		return *v.JsonRaw
	}
	return nil
}

// ValueText returns a feedback value as text, empty if it has none.
func ValueText(v workv1.FieldValue) string {
	if value := Value(v); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}
