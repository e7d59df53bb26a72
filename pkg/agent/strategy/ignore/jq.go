package ignore

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/itchyny/gojq"
)

const (
	// maxExpression is the maximum length of a jq expression in bytes.
	maxExpression = 4096
	// maxSteps bounds the evaluation of one expression in steps of the jq machine. Their number depends
	// on the expression and the object only. maxTime is for machines on which they take long.
	maxSteps = 500_000
	maxTime  = time.Second
)

// ErrBudget is the error of a jq expression that costs too much.
var ErrBudget = errors.New("it takes too many steps")

type expression struct {
	text    string
	program *gojq.Code // deletes the paths that the expression selects
}

func expressionError(text string, err error) error {
	if len(text) > maxExpression {
		text = strings.ToValidUTF8(text[:maxExpression], "") + "…"
	}
	return fmt.Errorf("JQ expression error in '%s': %w", text, err)
}

// compileExpression returns a program that deletes the paths of a jq expression. It has no access
// to files, to the environment or to other input.
func compileExpression(text string) (*gojq.Code, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(text), maxExpression)
	}
	paths, err := gojq.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(paths.Imports) > 0 || paths.Meta != nil {
		return nil, errors.New("modules are not available")
	}
	if _, err := gojq.Compile(paths, gojq.WithInputIter(gojq.NewIter[any]())); err != nil {
		return nil, err // of the expression as it stands
	}
	if err := restrict(paths); err != nil {
		return nil, err
	}
	// Built as a tree, not as text, so that the expression cannot break out of del().
	return gojq.Compile(&gojq.Query{Term: &gojq.Term{
		Type: gojq.TermTypeFunc,
		Func: &gojq.Func{Name: "del", Args: []*gojq.Query{paths}},
	}}, guardedOptions()...)
}

// remove runs the program on content and returns the result.
func (e *expression) remove(content any) (any, error) {
	value, ok := e.program.RunWithContext(&steps{Context: context.Background(), left: maxSteps, end: time.Now().Add(maxTime)}, content).Next()
	if !ok {
		return nil, errors.New("it returns nothing")
	}
	if err, failed := value.(error); failed {
		return nil, withoutValues(err)
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("it names the whole manifest")
	}
	return value, nil
}

// steps is a context that ends after a number of steps: the jq machine looks at it before each.
type steps struct {
	context.Context //nolint:containedctx // it is a context
	left            int
	end             time.Time
	over            bool
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done counts a step. It returns a closed channel if there have been too many.
func (s *steps) Done() <-chan struct{} {
	if s.left--; s.left < 0 || s.left%1024 == 0 && time.Now().After(s.end) {
		s.over = true
	}
	if s.over {
		return closed
	}
	return nil
}

// Err returns ErrBudget if there have been too many steps.
func (s *steps) Err() error {
	if s.over {
		return ErrBudget
	}
	return nil
}

// withoutValues returns an error of jq without the values that it names, which may be those of a
// Secret.
func withoutValues(err error) error {
	if errors.Is(err, ErrBudget) {
		return err
	}
	head, rest, _ := strings.Cut(err.Error(), ": ")
	kind, _, _ := strings.Cut(rest, " ")
	name, _, isCall := strings.Cut(head, " cannot be applied to")
	switch {
	case strings.HasPrefix(head, "invalid path"):
		return errors.New("invalid path: it selects a value that is not part of the manifest")
	case head == "cannot iterate over", strings.HasPrefix(head, "expected ") && strings.HasSuffix(head, " but got"):
		return fmt.Errorf("%s: %s", head, kind)
	case isCall:
		name, _, _ = strings.Cut(name, "(")
		return fmt.Errorf("%s cannot be applied to a value of this kind", strings.TrimPrefix(name, guardedPrefix))
	default:
		return errors.New("it fails")
	}
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
