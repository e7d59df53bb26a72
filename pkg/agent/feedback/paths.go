package feedback

import (
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/lru"
)

// maxDescents is the maximum number of recursive descents in an expression, because each one
// multiplies the cost.
const maxDescents = 3

// paths evaluates JSONPath expressions and caches the parsed ones.
type paths struct {
	parsed *lru.Cache // string → []jsonpath.Node, which is immutable
}

func newPaths(size int) *paths {
	return &paths{parsed: lru.New(size)}
}

// find returns all values of object that match an expression without its braces. A missing field
// matches nothing. Errors contain name, the name of the feedback value.
func (p *paths) find(name, expression string, object map[string]any) ([]any, error) {
	nodes, err := p.parse(expression)
	if err != nil {
		return nil, fmt.Errorf("failed to parse json path %s of %s with error: %w", expression, name, err)
	}
	found, err := evaluate(nodes, object)
	if err != nil {
		return nil, fmt.Errorf("failed to find value for %s with error: %w", name, err)
	}
	return found, nil
}

func (p *paths) parse(expression string) (nodes []jsonpath.Node, err error) {
	if known, ok := p.parsed.Get(expression); ok {
		return known.([]jsonpath.Node), nil
	}
	if strings.Count(expression, "..") > maxDescents {
		return nil, fmt.Errorf("it descends recursively (..) more than %d times", maxDescents)
	}
	// Some expressions make the library panic.
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the expression can not be parsed: %v", panicked)
		}
	}()
	parser, err := jsonpath.Parse("feedback", "{"+expression+"}")
	if err != nil {
		return nil, err
	}
	p.parsed.Add(expression, parser.Root.Nodes)
	return parser.Root.Nodes, nil
}
