// Package redaction keeps values of objects from being told: of the errors of API servers, which quote what they refuse,
// reason and field path stay; and of the Secrets in JSON.
package redaction

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// WithoutValues returns err with a text for logs and conditions, in which errors of the API server
// name no values of the object. secret reports whether the object is a Secret: then the words of an
// admission webhook or policy, which may quote anything, are left out as well. errors.Is and
// errors.As find what they find in err.
func WithoutValues(err error, secret bool) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	before := text
	for _, status := range statuses(err, nil) {
		if status.Message != "" {
			text = strings.ReplaceAll(text, status.Message, message(status, secret))
		}
	}
	if text == before {
		return err
	}
	return &redacted{text: text, err: err}
}

type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }
func (r *redacted) Unwrap() error { return r.err }

// statuses appends the answers of the API server that err wraps. What was redacted stays so.
func statuses(err error, found []metav1.Status) []metav1.Status {
	if _, done := err.(*redacted); done { //nolint:errorlint // it walks the tree itself
		return found
	}
	if answer, ok := err.(apierrors.APIStatus); ok {
		return append(found, answer.Status())
	}
	switch wrapper := err.(type) { //nolint:errorlint // it walks the tree itself
	case interface{ Unwrap() error }:
		if inner := wrapper.Unwrap(); inner != nil {
			found = statuses(inner, found)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			found = statuses(inner, found)
		}
	}
	return found
}

// admission matches the beginning of what admission says, up to the words of webhook or policy.
var admission = regexp.MustCompile(`^(admission webhook "[^"]*" denied the request|` +
	`\S+ "[^"]*" is forbidden: ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request)(: |$)`)

// message returns the text of an answer without values.
func message(s metav1.Status, secret bool) string {
	if match := admission.FindStringSubmatch(s.Message); match != nil {
		if secret {
			return match[1] + " (its message may quote the Secret and is left out)"
		}
		return s.Message
	}
	switch s.Reason {
	case metav1.StatusReasonInvalid:
		return invalid(s)
	case metav1.StatusReasonUnauthorized, metav1.StatusReasonForbidden, metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists,
		metav1.StatusReasonConflict, metav1.StatusReasonGone, metav1.StatusReasonExpired, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonTimeout, metav1.StatusReasonTooManyRequests, metav1.StatusReasonMethodNotAllowed,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonRequestEntityTooLarge:
		return s.Message
	default:
		return masked(s.Message)
	}
}

// invalid returns the text of an answer about invalid fields: the fields, and what is wrong.
func invalid(s metav1.Status) string {
	head, _, ok := strings.Cut(s.Message, " is invalid")
	if !ok {
		return "the object is invalid"
	}
	var causes []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			causes = append(causes, fmt.Sprintf("%s: %s", c.Field, cause(c.Message)))
		}
	}
	switch len(causes) {
	case 0:
		return head + " is invalid"
	case 1:
		return head + " is invalid: " + causes[0]
	default:
		return head + " is invalid: [" + strings.Join(causes, ", ") + "]"
	}
}

// withValue are the kinds of errors about a field whose text has the value and then the detail.
var withValue = []string{"Invalid value", "Unsupported value", "Duplicate value", "Not found", "Too many"}

// withoutValue are the kinds of errors about a field whose text has the detail only.
var withoutValue = []string{"Required value", "Forbidden", "Too long", "Internal error"}

// cause returns what is wrong with a field.
func cause(text string) string {
	for _, kind := range withValue {
		rest, ok := strings.CutPrefix(text, kind)
		if !ok {
			continue
		}
		detail := afterValue(strings.TrimPrefix(rest, ": "))
		if kind != "Unsupported value" { // it lists the supported ones
			detail = masked(detail)
		}
		return strings.TrimSuffix(kind+": "+detail, ": ")
	}
	for _, kind := range withoutValue {
		if rest, ok := strings.CutPrefix(text, kind); ok {
			rest, _, _ = strings.Cut(rest, "\n") // the rest is a difference of objects
			return kind + masked(rest)
		}
	}
	return "it is not valid"
}

// afterValue returns the detail that follows a value, nothing if the end of the value is not certain.
func afterValue(text string) string {
	if quoted, err := strconv.QuotedPrefix(text); err == nil {
		return strings.TrimPrefix(text[len(quoted):], ": ")
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	var value json.RawMessage
	if decoder.Decode(&value) != nil {
		return ""
	}
	detail, ok := strings.CutPrefix(text[decoder.InputOffset():], ": ")
	if !ok {
		return ""
	}
	return detail
}

var (
	quotedText = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"?|`[^`]*`?")
	apiVersion = regexp.MustCompile(`^"v[0-9]+(?:(?:alpha|beta)[0-9]+)?"$`)
	numberText = regexp.MustCompile(`\bnumber [-+.0-9eE]+`)
)

// fieldNames are the names that the validation of Kubernetes' own kinds (k8s.io/kubernetes, pkg/apis) has in backquotes. They are
// listed, since others quote values so too: what is left tells of a value at most that it is one of these names.
var fieldNames = sets.New(strings.Fields(`
	addresses allocated allNodes allowPrivilegeEscalation capabilities.Add cidr clusterIP configMapKeyRef configMapRef containerPort
	deallocationRequested defaultBackend deletionTimestamp devices dnsConfig dnsPolicy emulationVersion exactly externalTrafficPolicy fieldRef
	fileKeyRef firstAvailable hostIP hostNetwork hostUsers immutable ingressClassName ip key labels maxSurge minReplicas name nodeName
	nodeSelector notReadyAddresses operator parameters.scope perDeviceNodeSelection podGroupName port privileged resourceClaimName
	resourceClaimTemplateName resourceFieldRef restartPolicy rules secretKeyRef secretRef selector sharedCounters sinceSeconds sinceTime
	spec.activeDeadlineSeconds spec.os.name spec.resourceClaims spec.terminationGracePeriodSeconds spec.tolerations spec.type startTime
	strategy stream tailLines tolerationSeconds type value`)...)

// masked returns text without what it quotes, except for versions of an API and names of fields.
func masked(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	for _, dump := range []string{", error found in #", "valueUnstructured", "{"} { // excerpts and values that are not quoted
		text, _, _ = strings.Cut(text, dump)
	}
	text = quotedText.ReplaceAllStringFunc(text, func(quoted string) string {
		name, closed := strings.CutSuffix(quoted, "`")
		if apiVersion.MatchString(quoted) || closed && fieldNames.Has(strings.TrimPrefix(name, "`")) {
			return quoted
		}
		return `"…"`
	})
	return numberText.ReplaceAllString(text, "number")
}
