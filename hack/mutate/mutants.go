package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// mutant is a small fault: it replaces a part of a file.
type mutant struct {
	from, to int // offsets
	with     string
	line     int
	what     string
}

func (m mutant) apply(text []byte) []byte {
	return []byte(string(text[:m.from]) + m.with + string(text[m.to:]))
}

// swapped has operators, and what is put in their place.
var swapped = map[token.Token]token.Token{
	token.LAND: token.LOR, token.LOR: token.LAND, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.ADD: token.SUB, token.SUB: token.ADD,
}

// finder collects the mutants of a file.
type finder struct {
	set   *token.FileSet
	text  []byte
	next  map[string]string // of a constant: another of its group
	found []mutant
}

// mutantsOf returns all mutants of a file: conditions that are negated, operators that are swapped, statements that are
// removed, and constants that are returned in place of others.
func mutantsOf(name string, text []byte) ([]mutant, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &finder{set: set, text: text, next: map[string]string{"true": "false", "false": "true"}}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			f.constants(d)
		}
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			ast.Inspect(d.Body, f.visit)
		}
	}
	return f.found, nil
}

// constants remembers which constants can stand for each other.
func (f *finder) constants(d *ast.GenDecl) {
	var names []string
	for _, s := range d.Specs {
		for _, name := range s.(*ast.ValueSpec).Names {
			names = append(names, name.Name)
		}
	}
	for i, name := range names {
		if len(names) > 1 {
			f.next[name] = names[(i+1)%len(names)]
		}
	}
}

func (f *finder) offset(p token.Pos) int { return f.set.Position(p).Offset }

func (f *finder) source(n ast.Node) string {
	return string(f.text[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) add(n ast.Node, with string) {
	f.found = append(f.found, mutant{f.offset(n.Pos()), f.offset(n.End()), with, f.set.Position(n.Pos()).Line, fmt.Sprintf("%q in place of %q", with, f.source(n))})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					f.negate(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		if other, ok := swapped[n.Op]; ok {
			f.add(n, f.source(n.X)+" "+other.String()+" "+f.source(n.Y))
		}
	case *ast.ExprStmt, *ast.IncDecStmt:
		f.add(n, "")
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			f.add(n, "")
		}
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			f.replace(result)
		}
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok == token.CONTINUE {
			f.add(n, "break")
		}
	}
	return true
}

// negate negates a condition, unless swapping its operator does that.
func (f *finder) negate(condition ast.Expr) {
	if b, ok := condition.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.add(condition, "!("+f.source(condition)+")")
}

// replace replaces a constant that is returned.
func (f *finder) replace(result ast.Expr) {
	switch result := result.(type) {
	case *ast.Ident:
		if other, ok := f.next[result.Name]; ok {
			f.add(result, other)
		}
	case *ast.BasicLit:
		if number, err := strconv.Atoi(result.Value); err == nil {
			f.add(result, strconv.Itoa(number+1))
		}
	}
}
