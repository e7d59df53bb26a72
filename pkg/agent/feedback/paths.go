package feedback

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/lru"
)

// maxDescents is how often an expression may descend into all fields: each time
// multiplies what it has to look at.
const maxDescents = 3

// paths evaluates JSONPath expressions and keeps the parsed ones.
type paths struct {
	parsed *lru.Cache // string → *path
}

// path is a parsed expression. Evaluating one changes it, hence the lock.
type path struct {
	mu   sync.Mutex
	tree *jsonpath.JSONPath
}

func newPaths(size int) *paths {
	return &paths{parsed: lru.New(size)}
}

// find gives all that an expression, without its braces, matches in an object.
// What is missing matches nothing. The errors name the value that the expression
// is for.
func (p *paths) find(name, expression string, object map[string]any) (found []any, err error) {
	tree, err := p.parse(expression)
	if err != nil {
		return nil, fmt.Errorf("failed to parse json path %s of %s with error: %w", expression, name, err)
	}
	if found, err = tree.find(object); err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", name, err)
	}
	return found, nil
}

func (p *paths) parse(expression string) (*path, error) {
	if known, ok := p.parsed.Get(expression); ok {
		return known.(*path), nil
	}
	if strings.Count(expression, "..") > maxDescents {
		return nil, fmt.Errorf("it descends recursively (..) more than %d times", maxDescents)
	}
	parsed := &path{tree: jsonpath.New("feedback").AllowMissingKeys(true)}
	if err := guard(func() error { return parsed.tree.Parse("{" + expression + "}") }); err != nil {
		return nil, err
	}
	// Evaluating a range leaves the tree cut off.
	if !strings.ContainsAny(expression, "{}") && !strings.Contains(expression, "range") {
		p.parsed.Add(expression, parsed)
	}
	return parsed, nil
}

func (p *path) find(object map[string]any) (found []any, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = guard(func() error {
		results, err := p.tree.FindResults(object)
		if err != nil {
			return err
		}
		for _, matches := range results {
			for _, match := range matches {
				found = append(found, plain(match))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// plain gives the value behind a match; nil if it is null or can not be had.
func plain(match reflect.Value) any {
	if !match.IsValid() || !match.CanInterface() {
		return nil
	}
	return match.Interface()
}

// guard turns a panic of the JSONPath library, which some expressions cause,
// into an error.
func guard(do func() error) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the expression can not be evaluated: %v", panicked)
		}
	}()
	return do()
}
