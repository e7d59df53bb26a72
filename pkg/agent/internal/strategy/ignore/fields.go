// Package ignore evaluates the ignoreFields of server-side apply: which fields of a manifest are
// not sent to an object that exists, and which values they keep there.
//
// Fields are named in three languages: JSONPath, of which the last part is the key to remove; JSON
// Pointer, RFC 6901; and jq, in which an expression selects paths. Expressions are untrusted. Of jq,
// what selects paths is available, and nothing that makes values larger (docs/limits.md).
package ignore

import (
	"cmp"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/agent/internal/jsonpath"
	"github.com/workwire/workwire/pkg/agent/internal/strategy/fields"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// Error is the error of a manifest whose ignoreFields cannot be processed. The manifest's condition
// then has the reason AppliedManifestSSAIgnoreFieldError.
type Error struct{ Err error }

// Error returns the text of Err.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Fields are ignoreFields with the condition OnSpokePresent. The nil Fields names none. It is safe for
// concurrent use if it has a budget, or has removed something.
type Fields struct {
	entry       *workv1.IgnoreField // nil: compiled
	err         error               // of compiling
	paths       []removedPath
	pointers    [][]string // their tokens
	expressions []expression
	meter       *meter         // of expressions
	whole, live *budget.Budget // for manifests, and for live objects
}

// Compile returns the fields of the entry with the condition OnSpokePresent, which are compiled when
// they are needed first. It returns nil if there is none. An entry with OnSpokeChange is valid, but its
// fields are applied like any other and therefore not compiled. Evaluations spend from b, which may be nil.
func Compile(b *budget.Budget, entries []workv1.IgnoreField) (*Fields, error) {
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
			present = &Fields{entry: &entries[i], meter: &meter{}, whole: b, live: b.Live()}
		case workv1.IgnoreFieldsConditionOnSpokeChange:
		default:
			return nil, fmt.Errorf("ignoreFields has condition %q: it must be %s or %s", condition,
				workv1.IgnoreFieldsConditionOnSpokePresent, workv1.IgnoreFieldsConditionOnSpokeChange)
		}
	}
	return present, nil
}

// compileSteps is what compiling a jq expression costs, with the functions of jq that it calls, and stepsPerByte.
const compileSteps, stepsPerByte = 500, 10

// compile compiles the fields once, within b.
func (f *Fields) compile(b *budget.Budget) error {
	if entry := f.entry; entry != nil {
		f.entry, f.err = nil, f.compileEntry(b, entry)
	}
	return f.err
}

func (f *Fields) compileEntry(b *budget.Budget, entry *workv1.IgnoreField) error {
	for _, text := range entry.JSONPaths {
		if path, ok := compilePath(text); ok {
			f.paths = append(f.paths, path)
		}
	}
	for _, text := range entry.JSONPointers {
		tokens, err := fields.ParsePointer(text)
		if err != nil {
			return fmt.Errorf("JSON Pointer error in '%s': %w", text, err)
		}
		f.pointers = append(f.pointers, tokens)
	}
	for _, text := range entry.JQPathExpressions {
		if err := b.Spend(compileSteps + len(text)*stepsPerByte); err != nil {
			return err
		}
		program, err := compileExpression(text, f.meter)
		if err != nil {
			return expressionError(text, err)
		}
		f.expressions = append(f.expressions, expression{text: text, program: program})
	}
	return nil
}

// Exceeded reports whether an error says that an expression, or those of the work, cost too much.
func Exceeded(err error) bool { return errors.Is(err, ErrBudget) || errors.Is(err, budget.ErrExceeded) }

// Remove returns the content of a manifest without the fields. It changes content. [Exceeded] tells
// whether the error is about the cost.
func (f *Fields) Remove(content map[string]any) (map[string]any, error) {
	if f == nil {
		return content, nil
	}
	return f.remove(f.whole, content, false)
}

// remove is Remove. If lenient, it passes over expressions that fail, unless they use up their budget.
func (f *Fields) remove(b *budget.Budget, content map[string]any, lenient bool) (map[string]any, error) {
	b.Start()
	defer b.Stop()
	if err := f.compile(b); err != nil {
		return nil, err
	}
	if f.meter.budget != b {
		f.meter.budget = b
	}
	if err := f.removePaths(b, content); err != nil {
		return nil, err
	}
	for _, pointer := range f.pointers {
		fields.RemovePointer(content, pointer)
	}
	if len(f.expressions) == 0 {
		return content, nil
	}
	value, _ := convert(content, toJQ) // returns no error
	for i := range f.expressions {
		left, err := f.expressions[i].remove(value, b)
		switch {
		case err == nil:
			value = left
		case !lenient || Exceeded(err):
			return nil, expressionError(f.expressions[i].text, err)
		}
	}
	left, err := convert(value, fromJQ)
	if err != nil {
		return nil, expressionError(f.expressions[len(f.expressions)-1].text, err)
	}
	return left.(map[string]any), nil // expression.remove checks the type
}

// removePaths removes the fields of the jsonPaths.
func (f *Fields) removePaths(b *budget.Budget, content map[string]any) (err error) {
	if len(f.paths) == 0 {
		return nil
	}
	exceeded := b.Run(maxVisits, func(allowed int) (int, bool) {
		visits := jsonpath.Budget(allowed)
		err = nil
		for i := 0; i < len(f.paths) && err == nil; i++ {
			err = f.paths[i].remove(content, &visits)
		}
		return allowed - int(visits), err != nil
	})
	return cmp.Or(exceeded, err)
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
		return f.remove(f.live, content, true)
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
	left, err := f.remove(f.live, content, true)
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
// config-spec-hash, so that an object applied by one of them is not applied again. It is that of the
// text without quotes: ["a b"] and ["a","b"] have the same.
func Hash(manifest *unstructured.Unstructured) string {
	sum := md5.Sum(fmt.Appendf(nil, "%v", manifest)) // not used for security
	return hex.EncodeToString(sum[:])
}
