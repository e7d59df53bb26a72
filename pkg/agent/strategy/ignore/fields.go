// Package ignore evaluates the ignoreFields of server-side apply: which fields of a manifest are
// not sent to an object that exists, and which values they keep there.
//
// Fields are named in three languages: JSONPath, of which the last part is the key to remove; JSON
// Pointer, RFC 6901; and jq, in which an expression selects paths. Expressions are untrusted. Of jq,
// what selects paths is available, and nothing that makes values larger (docs/limits.md).
package ignore

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/jsonpath"
	"github.com/workwire/workwire/pkg/agent/strategy/fields"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Error is the error of a manifest whose ignoreFields cannot be processed. The manifest's condition
// then has the reason AppliedManifestSSAIgnoreFieldError.
type Error struct{ Err error }

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fields are compiled ignoreFields with the condition OnSpokePresent. The nil Fields names none. It
// is safe for concurrent use.
type Fields struct {
	paths       []removedPath
	pointers    [][]string // their tokens
	expressions []expression
}

// Compile compiles the fields of the entry with the condition OnSpokePresent. It returns nil if
// there is none. An entry with OnSpokeChange is valid, but its fields are applied like any other
// and therefore not compiled.
func Compile(entries []workv1.IgnoreField) (*Fields, error) {
	var present *Fields
	seen := map[workv1.IgnoreFieldsCondition]bool{}
	for i := range entries {
		condition := entries[i].Condition
		if condition == "" {
			condition = workv1.IgnoreFieldsConditionOnSpokePresent
		}
		if seen[condition] {
			return nil, fmt.Errorf("ignoreFields has more than one entry with condition %s; put their fields into one", condition)
		}
		seen[condition] = true
		switch condition {
		case workv1.IgnoreFieldsConditionOnSpokePresent:
			var err error
			if present, err = compile(&entries[i]); err != nil {
				return nil, err
			}
		case workv1.IgnoreFieldsConditionOnSpokeChange:
		default:
			return nil, fmt.Errorf("ignoreFields has condition %q: it must be %s or %s", condition,
				workv1.IgnoreFieldsConditionOnSpokePresent, workv1.IgnoreFieldsConditionOnSpokeChange)
		}
	}
	return present, nil
}

func compile(entry *workv1.IgnoreField) (*Fields, error) {
	compiled := &Fields{}
	for _, text := range entry.JSONPaths {
		if path, ok := compilePath(text); ok {
			compiled.paths = append(compiled.paths, path)
		}
	}
	for _, text := range entry.JSONPointers {
		tokens, err := fields.ParsePointer(text)
		if err != nil {
			return nil, fmt.Errorf("JSON Pointer error in '%s': %w", text, err)
		}
		compiled.pointers = append(compiled.pointers, tokens)
	}
	for _, text := range entry.JQPathExpressions {
		program, err := compileExpression(text)
		if err != nil {
			return nil, expressionError(text, err)
		}
		compiled.expressions = append(compiled.expressions, expression{text: text, program: program})
	}
	return compiled, nil
}

// Remove returns the content of a manifest without the fields. It changes content. The error wraps
// [ErrBudget] if a jq expression has used up its budget.
func (f *Fields) Remove(content map[string]any) (map[string]any, error) {
	return f.remove(content, false)
}

// remove is Remove. If lenient, it passes over expressions that fail, unless they use up their budget.
func (f *Fields) remove(content map[string]any, lenient bool) (map[string]any, error) {
	if f == nil {
		return content, nil
	}
	budget := jsonpath.Budget(maxVisits)
	for i := range f.paths {
		if err := f.paths[i].remove(content, &budget); err != nil {
			return nil, err
		}
	}
	for _, pointer := range f.pointers {
		fields.RemovePointer(content, pointer)
	}
	if len(f.expressions) == 0 {
		return content, nil
	}
	value, _ := convert(content, toJQ) // returns no error
	for i := range f.expressions {
		left, err := f.expressions[i].remove(value)
		switch {
		case err == nil:
			value = left
		case !lenient || errors.Is(err, ErrBudget):
			return nil, expressionError(f.expressions[i].text, err)
		}
	}
	left, err := convert(value, fromJQ)
	if err != nil {
		return nil, expressionError(f.expressions[len(f.expressions)-1].text, err)
	}
	return left.(map[string]any), nil // expression.remove checks the type
}

// maxVisits is how many values the jsonPaths of a manifest may visit together.
const maxVisits = 1_000_000

// removedPath is a JSONPath of which the last part is the key to remove.
type removedPath struct {
	text, key string
	objects   *jsonpath.Path
}

// compilePath compiles a path. An invalid one is passed over.
func compilePath(text string) (removedPath, bool) {
	parts := strings.Split(text, ".")
	objects, err := jsonpath.Parse(strings.Join(parts[:len(parts)-1], "."))
	return removedPath{text: text, key: parts[len(parts)-1], objects: objects}, err == nil
}

// remove deletes the key from every object that the path finds. It fails if that is not affordable.
func (p *removedPath) remove(content map[string]any, budget *jsonpath.Budget) error {
	found, err := p.objects.Find(content, budget)
	if errors.Is(err, jsonpath.ErrBudget) {
		return fmt.Errorf("JSON path error in '%s': %w", p.text, err)
	}
	for _, value := range found {
		if object, ok := value.(map[string]any); ok && err == nil {
			delete(object, p.key)
		}
	}
	return nil
}

// without returns a copy of a live object without the fields. An expression that is valid for the
// manifest may fail on the object; then it selects nothing. Fields of a Secret's stringData are
// removed from data, into which the API server has turned them.
func (f *Fields) without(live *unstructured.Unstructured) (map[string]any, error) {
	content := runtime.DeepCopyJSON(live.Object)
	data, isMap := content["data"].(map[string]any)
	if live.GetKind() != "Secret" || live.GetAPIVersion() != "v1" || !isMap {
		return f.remove(content, true)
	}
	plain := make(map[string]any, len(data))
	for key, value := range data {
		text, _ := value.(string)
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("data.%s is not base64", key)
		}
		plain[key] = string(decoded)
	}
	content["stringData"] = plain
	left, err := f.remove(content, true)
	if err != nil {
		return nil, err
	}
	remaining, _ := left["data"].(map[string]any)
	stillPlain, _ := left["stringData"].(map[string]any)
	for key := range data {
		if _, ok := stillPlain[key]; !ok {
			delete(remaining, key)
		}
	}
	delete(left, "stringData")
	return left, nil
}

// Hash returns the hash of a manifest that other agents for ManifestWorks write into the annotation
// config-spec-hash, so that an object applied by one of them is not applied again.
func Hash(manifest *unstructured.Unstructured) string {
	sum := md5.Sum(fmt.Appendf(nil, "%v", manifest)) // not used for security
	return hex.EncodeToString(sum[:])
}
