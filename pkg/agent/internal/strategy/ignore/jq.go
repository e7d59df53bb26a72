package ignore

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"

	"github.com/itchyny/gojq"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

const (
	// maxExpression is the maximum length of a jq expression in bytes.
	maxExpression = 4096
	// maxSteps bounds the evaluation of one expression in steps of the jq machine. Their number depends
	// on the expression and the object only. The budget bounds their CPU time.
	maxSteps = 500_000
	// maxPathBytes is how many bytes the paths may have that an expression selects.
	maxPathBytes = 8 << 20
)

// ErrBudget is the error of a jq expression that costs too much.
var ErrBudget = errors.New("it takes too many steps")

type expression struct {
	text    string
	program *gojq.Code // returns the paths that the expression selects
}

func expressionError(text string, err error) error {
	return fmt.Errorf("JQ expression error in '%s': %w", condition.Shorten(text, maxExpression), err)
}

// compileExpression returns a program that returns the paths of a jq expression. It has no access
// to files, to the environment or to other input.
func compileExpression(text string, m *meter) (*gojq.Code, error) {
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
	// Built as a tree, not as text, so that the expression cannot break out of path().
	return gojq.Compile(&gojq.Query{Term: &gojq.Term{
		Type: gojq.TermTypeFunc,
		Func: &gojq.Func{Name: "path", Args: []*gojq.Query{paths}},
	}}, guardedOptions(m)...)
}

// deletePaths is the rest of jq's del, which collects gigabytes of paths in one step: here they come one by one.
var deletePaths = sync.OnceValue(func() *gojq.Code { return mustCompile("delpaths($paths)", "$paths") })

func mustCompile(text string, variables ...string) *gojq.Code {
	query, err := gojq.Parse(text)
	if err == nil {
		var program *gojq.Code
		if program, err = gojq.Compile(query, gojq.WithVariables(variables)); err == nil {
			return program
		}
	}
	panic(err) // text is constant
}

// remove returns content without the paths that the expression selects.
func (e *expression) remove(content any, b *budget.Budget) (any, error) {
	ctx := &steps{Context: context.Background(), left: maxSteps, budget: b}
	paths, err := selected(e.program.RunWithContext(ctx, content), b)
	if ctx.err != nil {
		err = ctx.err // whatever the expression makes of it
	}
	if err != nil {
		return nil, withoutValues(err)
	}
	if len(paths) == 0 {
		return content, nil
	}
	value, _ := deletePaths().Run(content, paths).Next()
	if err, failed := value.(error); failed {
		return nil, withoutValues(err)
	}
	if _, ok := value.(map[string]any); !ok {
		return nil, errors.New("it names the whole manifest")
	}
	return value, nil
}

// selected returns the paths that a program returns.
func selected(results gojq.Iter, b *budget.Budget) (paths []any, err error) {
	const perPath, perKey = 64, 16 // bytes
	size := 0
	for value, ok := results.Next(); ok; value, ok = results.Next() {
		if err, failed := value.(error); failed {
			return nil, err
		}
		path, _ := value.([]any)
		bytes := perPath + perKey*len(path)
		if size += bytes; size > maxPathBytes {
			return nil, errPaths
		}
		if err := b.Spend(bytes / perKey); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// errPaths is the error of an expression that selects too much.
var errPaths = fmt.Errorf("%w: it selects too many fields", ErrBudget)

// steps is a context that ends after a number of steps: the jq machine looks at it before each.
type steps struct {
	context.Context //nolint:containedctx // it is a context
	left            int
	budget          *budget.Budget
	err             error // nil while steps may be taken
}

// timeEvery is after how many steps the time is looked at: one may take milliseconds.
const timeEvery = 8

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done counts a step. It returns a closed channel if there have been too many.
func (s *steps) Done() <-chan struct{} {
	if s.err != nil {
		return closed
	}
	if s.left--; s.left < 0 {
		s.err = ErrBudget
	} else if err := s.budget.Spend(1); err != nil {
		s.err = err
	} else if s.left%timeEvery == 0 && s.budget.Late() {
		s.err = budget.ErrExceeded
	}
	if s.err != nil {
		return closed
	}
	return nil
}

// Err returns why there have been too many steps, nil if there have not.
func (s *steps) Err() error { return s.err }

// withoutValues returns an error of jq without the values that it names, which may be those of a
// Secret.
func withoutValues(err error) error {
	if Exceeded(err) {
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
