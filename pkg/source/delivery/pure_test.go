package delivery

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// TestCoreIsPure: the files of the core know no clock, no lock, no context and no transport, and start nothing.
func TestCoreIsPure(t *testing.T) {
	for _, name := range []string{
		"core.go", "inputs.go", "attempt.go", "asks.go", "jobs.go", "waiting.go", "question.go", "transitions.go", "work.go", "cluster.go", "plan.go", "schedule.go", "sequence.go", "roundtrip.go", "divergence.go",
	} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range file.Imports {
			if slices.Contains([]string{
				`"context"`, `"sync"`, `"math/rand/v2"`, `"log/slog"`, `"github.com/workwire/workwire/pkg/transport"`,
			}, imported.Path.Value) {
				t.Errorf("%s imports %s", name, imported.Path.Value)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s starts or sends something", name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
