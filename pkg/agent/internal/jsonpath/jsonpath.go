// Package jsonpath evaluates Kubernetes' JSONPath on the JSON of an object, for what is worth at most:
//
//	path, err := jsonpath.Parse(".status.conditions[*].type")
//	budget := jsonpath.Budget(10_000)
//	matches, err := path.Find(object, &budget)
//
// Paths are untrusted. What an evaluation costs, in time and in memory, is counted in visits of
// values, and ends with [ErrBudget] when the budget is used up.
package jsonpath

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

const (
	// MaxLength is the maximum length of a path in bytes.
	MaxLength = 4096
	// maxDescents is the maximum number of recursive descents in a path, because each one
	// multiplies the cost.
	maxDescents = 3
)

// ErrBudget is the error of an evaluation that has used up its budget.
var ErrBudget = errors.New("it visits too many values")

// Budget is how many values evaluations may visit. Several may share one.
type Budget int

// Path is a parsed path. It is immutable and safe for concurrent use.
type Path struct{ list *jsonpath.ListNode }

// Parse returns the path of an expression without its braces. Errors name no more than the syntax.
func Parse(expression string) (path *Path, err error) {
	if n := len(expression); n > MaxLength {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", n, MaxLength)
	}
	if strings.Count(expression, "..") > maxDescents {
		return nil, fmt.Errorf("it descends recursively (..) more than %d times", maxDescents)
	}
	// Some expressions make the library panic.
	defer func() {
		if panicked := recover(); panicked != nil {
			path, err = nil, fmt.Errorf("the expression cannot be parsed: %v", panicked)
		}
	}()
	parser, err := jsonpath.Parse("path", "{"+expression+"}")
	if err != nil {
		return nil, err
	}
	if len(parser.Root.Nodes) == 1 {
		if list, ok := parser.Root.Nodes[0].(*jsonpath.ListNode); ok {
			return &Path{list}, nil
		}
	}
	return nil, errors.New("it has braces: give one path, without them")
}

// Find returns the values in object that match, in an order that depends on object only. A missing
// field matches nothing. It subtracts its cost from budget. Errors contain no values. Find does not
// modify object; it returns parts of it.
//
// It replaces the evaluation of the library, which visits the fields of an object in random order,
// so that the first of several matches differs each time, modifies the parsed nodes, returns an
// error for null but not for a missing field, discards all matches at an empty list, and returns
// errors that may contain values. A test verifies that both agree in all other cases.
func (p *Path) Find(object any, budget *Budget) ([]any, error) {
	e := evaluation{budget}
	return e.walk([]any{object}, p.list)
}

// evaluation is one call of Find.
type evaluation struct{ budget *Budget }

// spend subtracts a number of visits from the budget.
func (e *evaluation) spend(visits int) error {
	if *e.budget -= Budget(visits); *e.budget < 0 {
		*e.budget = 0
		return ErrBudget
	}
	return nil
}
