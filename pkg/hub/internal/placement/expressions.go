package placement

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/workwire/workwire/pkg/runtime/expression"
)

const (
	// maxClusterCost is what an expression may cost for one cluster, in the units of [expression].
	maxClusterCost = 50_000
	// maxClusterTime limits the same, in case the cost underestimates it.
	maxClusterTime = time.Second
	// maxExpressions and maxExpressionsLength limit the expressions of one Placement, since compiling them takes
	// time, too.
	maxExpressions       = 64
	maxExpressionsLength = expression.MaxLength
	// maxPrepareTime limits the evaluation of the expressions of a Placement for all clusters. It goes on after
	// prepareAgain, with the clusters that are left.
	maxPrepareTime = 2 * time.Second
	prepareAgain   = 20 * time.Second
	// maxChangeTime limits the evaluation of the expressions of all Placements when a cluster changes.
	maxChangeTime = 5 * time.Millisecond
)

// errTooSlow makes a Placement misconfigured until all clusters have their turn.
var errTooSlow = fmt.Errorf("the celExpressions take more than %v: the clusters that are left follow after %v; simplify the expressions", maxPrepareTime, prepareAgain)

// celExpression is a compiled expression with its results by cluster, so that it is evaluated again only for
// clusters that have changed. It is safe for concurrent use.
type celExpression struct {
	text    string
	program *expression.Program

	mu      sync.Mutex
	results map[string]celResult // guarded by mu
}

// celResult is the result of an expression for a cluster.
type celResult struct {
	of      *version
	matches bool
	fault   string // why it could not be evaluated; empty if it could
	until   int64  // when the result changes without another change; 0 if never
}

// evaluate returns the result for a cluster.
func (e *celExpression) evaluate(c *cluster, now int64) celResult {
	e.mu.Lock()
	known, ok := e.results[c.name]
	e.mu.Unlock()
	if ok && known.of == c.version && (known.until == 0 || known.until > now) {
		return known
	}
	result := e.run(c, now)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.results[c.name] = result
	return result
}

func (e *celExpression) run(of *cluster, now int64) celResult {
	variable := newManagedCluster(of, now)
	ctx := expression.Until(context.Background(), time.Now().Add(maxClusterTime))
	value, cost, err := e.program.Run(ctx, map[string]any{"managedCluster": variable}, maxClusterCost)
	result := celResult{of: of.version, until: variable.until}
	matches, isBool := value.(types.Bool)
	switch {
	case cost >= maxClusterCost: // or it took too long
		result.fault = "it costs too much"
	case err != nil:
		result.fault = err.Error()
	case !isBool:
		result.fault = fmt.Sprintf("it returns a %s, and must return a bool", value.Type().TypeName())
	}
	if result.fault != "" {
		result.fault = fmt.Sprintf("expression %.100q: %s", e.text, expression.Fault(result.fault))
	}
	result.matches = result.fault == "" && bool(matches)
	return result
}

// forget drops the result for a cluster that is gone.
func (e *celExpression) forget(cluster string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.results, cluster)
}

func compileExpression(compiler *expression.Compiler, text string) (*celExpression, error) {
	program, err := compiler.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("expression %.100q: %w", text, err)
	}
	if !program.MayReturn(cel.BoolType) {
		return nil, fmt.Errorf("expression %.100q: it must return a bool", text)
	}
	return &celExpression{text: text, program: program, results: make(map[string]celResult)}, nil
}
