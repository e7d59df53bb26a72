package delivery

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestCoreIsPure: a file with a method of the core, of its records, or of an input knows no engine, no clock, no lock, no
// context and no transport, and starts nothing.
func TestCoreIsPure(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	pure := 0
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !ofCore(file) {
			continue
		}
		pure++
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
			case *ast.Ident:
				if n.Name == "Engine" {
					t.Errorf("%s knows the engine", name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "AfterFunc", "NewTimer"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
	}
	if pure < 10 {
		t.Errorf("%d files are of the core", pure)
	}
}

// ofCore reports whether a file declares a method of the core, of its records, or of an input.
func ofCore(file *ast.File) bool {
	return slices.ContainsFunc(file.Decls, func(d ast.Decl) bool {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			return false
		}
		receiver := f.Recv.List[0].Type
		if pointer, ok := receiver.(*ast.StarExpr); ok {
			receiver = pointer.X
		}
		name, ok := receiver.(*ast.Ident)
		return f.Name.Name == "apply" || ok && slices.Contains([]string{"core", "workRecord", "clusterRecord"}, name.Name)
	})
}
