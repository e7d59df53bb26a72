package strategy

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// expressionLimit bounds the evaluation of one jq expression.
const expressionLimit = time.Second

// fieldSelection names fields of an object in three languages. It is safe for
// concurrent use.
type fieldSelection struct {
	paths       []string
	pointers    []fieldPointer
	expressions []fieldExpression
}

type fieldPointer struct {
	text   string
	tokens []string
}

type fieldExpression struct {
	text    string
	program *gojq.Code // deletes what the expression names
}

func compileFields(entry *workv1.IgnoreField) (*fieldSelection, error) {
	fields := &fieldSelection{paths: entry.JSONPaths}
	for _, text := range entry.JSONPointers {
		tokens, err := parsePointer(text)
		if err != nil {
			return nil, pointerError(text, err)
		}
		fields.pointers = append(fields.pointers, fieldPointer{text: text, tokens: tokens})
	}
	for _, text := range entry.JQPathExpressions {
		program, err := compileExpression(text)
		if err != nil {
			return nil, expressionError(text, err)
		}
		fields.expressions = append(fields.expressions, fieldExpression{text: text, program: program})
	}
	return fields, nil
}

func pointerError(text string, err error) error {
	return fmt.Errorf("JSON Pointer error in '%s': %w", text, err)
}

func expressionError(text string, err error) error {
	return fmt.Errorf("JQ expression error in '%s': %w", text, err)
}

// remove gives content, which is used up, without the selected fields. A lenient
// one passes over expressions that fail, unless they take too long.
func (f *fieldSelection) remove(content map[string]any, lenient bool) (map[string]any, error) {
	if f == nil {
		return content, nil
	}
	for _, path := range f.paths {
		removePath(content, path)
	}
	for _, pointer := range f.pointers {
		removePointer(content, pointer.tokens)
	}
	if len(f.expressions) == 0 {
		return content, nil
	}
	value := toJQ(content)
	for i := range f.expressions {
		left, err := f.expressions[i].remove(value)
		switch {
		case err == nil:
			value = left
		case !lenient || errors.Is(err, errTooLong):
			return nil, expressionError(f.expressions[i].text, err)
		}
	}
	left, err := fromJQ(value)
	if err != nil {
		return nil, expressionError(f.expressions[len(f.expressions)-1].text, err)
	}
	return left.(map[string]any), nil // remove sees to that
}

// removePath deletes the last part of a path from every map that the rest of it
// finds. It passes over a path that it does not understand.
func removePath(content map[string]any, path string) {
	parts := strings.Split(path, ".")
	key := parts[len(parts)-1]
	finder := jsonpath.New("ignoreFields").AllowMissingKeys(true)
	if finder.Parse("{"+strings.Join(parts[:len(parts)-1], ".")+"}") != nil {
		return
	}
	lists, err := finder.FindResults(content)
	if err != nil {
		return
	}
	for _, list := range lists {
		for _, found := range list {
			if !found.IsValid() || !found.CanInterface() {
				continue
			}
			if fields, ok := found.Interface().(map[string]any); ok {
				delete(fields, key)
			}
		}
	}
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// parsePointer reads a JSON pointer, RFC 6901.
func parsePointer(text string) ([]string, error) {
	if text == "" {
		return nil, errors.New("it names the whole manifest")
	}
	if !strings.HasPrefix(text, "/") {
		return nil, errors.New(`it must begin with "/"`)
	}
	tokens := strings.Split(text[1:], "/")
	for i, token := range tokens {
		for at := range token {
			if token[at] == '~' && !strings.HasPrefix(token[at+1:], "0") && !strings.HasPrefix(token[at+1:], "1") {
				return nil, errors.New(`"~" must be followed by 0 or 1`)
			}
		}
		tokens[i] = pointerUnescapes.Replace(token)
	}
	return tokens, nil
}

// removePointer gives value without what the tokens lead to, if there is that.
func removePointer(value any, tokens []string) any {
	switch value := value.(type) {
	case map[string]any:
		child, ok := value[tokens[0]]
		switch {
		case !ok:
		case len(tokens) == 1:
			delete(value, tokens[0])
		default:
			value[tokens[0]] = removePointer(child, tokens[1:])
		}
	case []any:
		i, ok := listIndex(tokens[0], len(value))
		switch {
		case !ok:
		case len(tokens) == 1:
			return slices.Delete(value, i, i+1)
		default:
			value[i] = removePointer(value[i], tokens[1:])
		}
	}
	return value
}

// listIndex reads the index of an item of a list, without leading zeros.
func listIndex(token string, length int) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i >= 0 && i < length && strconv.Itoa(i) == token
}

// compileExpression gives a program that deletes the paths of a jq expression. It
// has no access to files, to the environment, or to other input.
func compileExpression(text string) (*gojq.Code, error) {
	paths, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(paths.Imports) > 0 || paths.Meta != nil {
		return nil, errors.New("modules are not available")
	}
	// Made here rather than as text, so that it can be nothing but an argument.
	return gojq.Compile(&gojq.Query{Term: &gojq.Term{
		Type: gojq.TermTypeFunc,
		Func: &gojq.Func{Name: "del", Args: []*gojq.Query{paths}},
	}})
}

var errTooLong = fmt.Errorf("it takes longer than %s", expressionLimit)

// remove runs the program.
func (e *fieldExpression) remove(content any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), expressionLimit)
	defer cancel()
	value, ok := e.program.RunWithContext(ctx, content).Next()
	if !ok {
		return nil, errors.New("it gives nothing")
	}
	if err, failed := value.(error); failed {
		if ctx.Err() != nil {
			return nil, errTooLong
		}
		return nil, err
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("it names the whole manifest")
	}
	return value, nil
}

// toJQ gives a copy of a value in the types that jq's programs take.
func toJQ(value any) any {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, field := range value {
			fields[key] = toJQ(field)
		}
		return fields
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			items[i] = toJQ(item)
		}
		return items
	case int64:
		if int64(int(value)) == value {
			return int(value)
		}
		return big.NewInt(value)
	default:
		return value
	}
}

// fromJQ is the reverse of toJQ.
func fromJQ(value any) (any, error) {
	switch value := value.(type) {
	case map[string]any:
		fields := make(map[string]any, len(value))
		for key, field := range value {
			var err error
			if fields[key], err = fromJQ(field); err != nil {
				return nil, err
			}
		}
		return fields, nil
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			var err error
			if items[i], err = fromJQ(item); err != nil {
				return nil, err
			}
		}
		return items, nil
	case int:
		return int64(value), nil
	case *big.Int:
		if !value.IsInt64() {
			return nil, fmt.Errorf("the number %s is too large", value)
		}
		return value.Int64(), nil
	default:
		return value, nil
	}
}

// without gives a copy of a live object without the selected fields. An expression
// that is fine for the manifest may find less here than it takes for granted; then
// it selects nothing. And it may select fields of a Secret's stringData, which the
// API server has turned into data.
func (f *fieldSelection) without(live *unstructured.Unstructured) (map[string]any, error) {
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
