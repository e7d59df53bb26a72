package ignore

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/itchyny/gojq"
)

// expressionTimeout bounds the evaluation of one jq expression.
const expressionTimeout = time.Second

// ErrTooLong is the error of a jq expression that ran out of time.
var ErrTooLong = fmt.Errorf("it takes longer than %s", expressionTimeout)

type expression struct {
	text    string
	program *gojq.Code // deletes the paths that the expression selects
}

func expressionError(text string, err error) error {
	return fmt.Errorf("JQ expression error in '%s': %w", text, err)
}

// compileExpression returns a program that deletes the paths of a jq expression. It has no access
// to files, to the environment or to other input.
func compileExpression(text string) (*gojq.Code, error) {
	paths, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(paths.Imports) > 0 || paths.Meta != nil {
		return nil, errors.New("modules are not available")
	}
	// Built as a tree, not as text, so that the expression cannot break out of del().
	return gojq.Compile(&gojq.Query{Term: &gojq.Term{
		Type: gojq.TermTypeFunc,
		Func: &gojq.Func{Name: "del", Args: []*gojq.Query{paths}},
	}})
}

// remove runs the program on content and returns the result.
func (e *expression) remove(content any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), expressionTimeout)
	defer cancel()
	value, ok := e.program.RunWithContext(ctx, content).Next()
	if !ok {
		return nil, errors.New("it returns nothing")
	}
	if err, failed := value.(error); failed {
		if ctx.Err() != nil {
			return nil, ErrTooLong
		}
		return nil, err
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("it names the whole manifest")
	}
	return value, nil
}

// convert returns a copy of a value with integers as jq programs take them, and as Kubernetes does:
// toJQ and fromJQ convert one.
func convert(value any, integer func(any) (any, error)) (_ any, err error) {
	switch value := value.(type) {
	case map[string]any:
		object := make(map[string]any, len(value))
		for key, field := range value {
			if object[key], err = convert(field, integer); err != nil {
				return nil, err
			}
		}
		return object, nil
	case []any:
		items := make([]any, len(value))
		for i, item := range value {
			if items[i], err = convert(item, integer); err != nil {
				return nil, err
			}
		}
		return items, nil
	default:
		return integer(value)
	}
}

func toJQ(value any) (any, error) {
	number, ok := value.(int64)
	switch {
	case !ok:
		return value, nil
	case int64(int(number)) == number:
		return int(number), nil
	default:
		return big.NewInt(number), nil
	}
}

func fromJQ(value any) (any, error) {
	switch value := value.(type) {
	case int:
		return int64(value), nil
	case *big.Int:
		if !value.IsInt64() {
			return nil, fmt.Errorf("the number %s is too large", value)
		}
		return value.Int64(), nil
	}
	return value, nil
}
