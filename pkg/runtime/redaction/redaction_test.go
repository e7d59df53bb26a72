package redaction

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const secretText = `hunter2: "x"`

func invalidErr(errs ...*field.Error) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", errs)
}

func status(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// TestWithoutValues: reason and field path stay, values go. `pkg/agent/internal/strategy/apply` TestErrorsOfTheServer
// has answers of a real API server.
func TestWithoutValues(t *testing.T) {
	at := field.NewPath("data", "key")
	for name, c := range map[string]struct {
		err    error
		secret bool
		want   string
	}{
		"a text":      {invalidErr(field.Invalid(at, secretText, "field is immutable")), false, `Secret "s" is invalid: data.key: Invalid value: field is immutable`},
		"a number":    {invalidErr(field.Invalid(at, 4711, "must be less")), false, `Secret "s" is invalid: data.key: Invalid value: must be less`},
		"an object":   {invalidErr(field.Invalid(at, map[string]any{"a": secretText + "}: b"}, "field is immutable")), false, `Secret "s" is invalid: data.key: Invalid value: field is immutable`},
		"a pointer":   {invalidErr(field.Invalid(at, &metav1.ObjectMeta{Name: secretText}, "no")), false, `Secret "s" is invalid: data.key: Invalid value: no`},
		"unsupported": {invalidErr(field.NotSupported(at, secretText, []string{"A", "B"})), false, `Secret "s" is invalid: data.key: Unsupported value: supported values: "A", "B"`},
		"required":    {invalidErr(field.Required(at, "it is needed")), false, `Secret "s" is invalid: data.key: Required value: it is needed`},
		"a difference": {invalidErr(field.Forbidden(at, "pod updates may not change fields\n  Env: "+secretText)), false,
			`Secret "s" is invalid: data.key: Forbidden: pod updates may not change fields`},
		"a quoting detail": {invalidErr(field.Invalid(at, "v", `"`+"hunter2"+`" is no time`)), false, `Secret "s" is invalid: data.key: Invalid value: "…" is no time`},
		"names of fields": {invalidErr(field.Invalid(at, map[string]string{"a": "hunter2"}, "`selector` does not match template `labels`")), false,
			"Secret \"s\" is invalid: data.key: Invalid value: `selector` does not match template `labels`"},
		"names of fields alone": {invalidErr(field.Forbidden(at, "at most one of `a` or `spec.os.name` may be set")), false,
			"Secret \"s\" is invalid: data.key: Forbidden: at most one of \"…\" or `spec.os.name` may be set"},
		"a quoting rule": {invalidErr(field.Invalid(at, "v", "`hunter` is no `hunter.labels`, and `labels")), false,
			`Secret "s" is invalid: data.key: Invalid value: "…" is no "…", and "…"`},
		"several": {invalidErr(field.Invalid(at, secretText, "a"), field.Duplicate(at.Index(1), secretText)), false,
			`Secret "s" is invalid: [data.key: Invalid value: a, data.key[1]: Duplicate value]`},
		"wrapped": {fmt.Errorf("apply secrets ns/s: %w", invalidErr(field.Invalid(at, secretText, "no"))), false,
			`apply secrets ns/s: Secret "s" is invalid: data.key: Invalid value: no`},
		"joined": {errors.Join(errors.New("first"), invalidErr(field.Invalid(at, secretText, "no"))), false, "first\n" + `Secret "s" is invalid: data.key: Invalid value: no`},
		"base64": {status(400, metav1.StatusReasonBadRequest, `Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 4`), true,
			`Secret in version "v1" cannot be handled as a Secret: illegal base64 data at input byte 4`},
		"a decoder's excerpt": {status(400, metav1.StatusReasonBadRequest, `invalid character 'h', error found in #10 byte of ...|hunter2|...`), false, `invalid character 'h'`},
		"a parser's text":     {status(400, metav1.StatusReasonBadRequest, `strconv.ParseInt: parsing "hunter2": invalid syntax`), false, `strconv.ParseInt: parsing "…": invalid syntax`},
		"no causes":           {status(422, metav1.StatusReasonInvalid, `Secret "s" is invalid: hunter2`), false, `Secret "s" is invalid`},
		"a typed patch": {status(500, "", `failed to create typed patch object (ns/s; v1, Kind=Secret): .data: expected map, got &{hunter2}`), false,
			`failed to create typed patch object (ns/s; v1, Kind=Secret): .data: expected map, got &`},
		"a conflict": {status(409, metav1.StatusReasonConflict, `Apply failed with 1 conflict: conflict with "other": .data.a`), true, `Apply failed with 1 conflict: conflict with "other": .data.a`},
		"a webhook":  {status(403, metav1.StatusReasonForbidden, `admission webhook "w.example.com" denied the request: bad hunter2`), false, `admission webhook "w.example.com" denied the request: bad hunter2`},
		"a webhook about a Secret": {status(400, metav1.StatusReasonBadRequest, `admission webhook "w.example.com" denied the request: bad hunter2`), true,
			`admission webhook "w.example.com" denied the request (its message may quote the Secret and is left out)`},
		"a policy about a Secret": {status(422, metav1.StatusReasonInvalid, `secrets "s" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: bad hunter2`), true,
			`secrets "s" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request (its message may quote the Secret and is left out)`},
		"another error": {errors.New("connection refused"), true, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			got := WithoutValues(c.err, c.secret)
			if got.Error() != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if !errors.Is(got, c.err) || apierrors.ReasonForError(got) != apierrors.ReasonForError(c.err) {
				t.Error("it is another error")
			}
			if again := WithoutValues(got, c.secret); again.Error() != c.want {
				t.Errorf("again: %s", again)
			}
		})
	}
	if WithoutValues(nil, true) != nil {
		t.Error("nil is an error")
	}
}

// FuzzCause: no text and no object that is a value is in what is left, whatever it contains.
func FuzzCause(f *testing.F) {
	f.Add("a", "b")
	f.Add(`}: x`, `": detail`)
	f.Fuzz(func(t *testing.T, key, value string) {
		const mark = "MARKER"
		for _, bad := range []any{mark + value, value + mark, map[string]string{key: value + mark + value}, []string{value, mark + key}} {
			err := WithoutValues(invalidErr(field.Invalid(field.NewPath("data"), bad, "field is immutable")), false)
			if strings.Contains(err.Error(), mark) {
				t.Errorf("%#v: %s", bad, err)
			}
		}
	})
}
