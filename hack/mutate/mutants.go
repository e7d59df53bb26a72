package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mutant is a small fault. All mutants of a file are written into it at once; a run of the tests switches one of them on.
type mutant struct {
	name    string
	line    int
	what    string
	inserts []insert
}

// insert is text that a mutant puts at an offset, in place of the next drop bytes.
type insert struct {
	at, drop int
	text     string
	closes   bool // it belongs to what is before the offset
}

// swapped has operators, and what a mutant puts in their place.
var swapped = map[token.Token]token.Token{
	token.LAND: token.LOR, token.LOR: token.LAND, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.ADD: token.SUB, token.SUB: token.ADD,
}

// switches is what mutants call, in a file of its own.
const switches = `package %s

import (
	"cmp"
	"os"
)

var mutantOn = os.Getenv("MUTANT")

func mutantIs(n string) bool { return n == mutantOn }

func mutantCompared[T cmp.Ordered](n, op string, a, b T) bool {
	on := n == mutantOn
	switch op {
	case "<":
		return a < b || on && a == b
	case ">":
		return a > b || on && a == b
	case "<=":
		return a < b || !on && a == b
	default:
		return a > b || !on && a == b
	}
}

func mutantSum[T ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float64](n, op string, a, b T) T {
	if (op == "+") == (n != mutantOn) {
		return a + b
	}
	return a - b
}
`

// finder collects the mutants of a file.
type finder struct {
	set    *token.FileSet
	text   []byte
	next   map[string]string // of a constant: another of its group
	simple map[ast.Stmt]bool // statements that cannot stand in a block: those in the head of another
	found  []mutant
}

// mutantsOf returns all mutants of a file: conditions that are negated, operators that are swapped, statements that are
// removed, and constants that are returned in place of others. It looks into functions whose names match.
func mutantsOf(name string, text []byte, functions *regexp.Regexp) (pkg string, mutants []mutant, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	f := &finder{set: set, text: text, next: map[string]string{"true": "false", "false": "true"}, simple: map[ast.Stmt]bool{}}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			f.constants(d)
		}
	}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil && functions.MatchString(d.Name.Name) {
			ast.Inspect(d.Body, f.visit)
		}
	}
	return file.Name.Name, f.found, nil
}

// place is where a mutant is in the file that has all.
type place struct {
	at     int
	mutant string
}

// together returns the file with all mutants, each of them off, and where they are.
func together(text []byte, mutants []mutant) (mutated []byte, places []place) {
	type numbered struct {
		insert
		of int
	}
	var all []numbered
	for i, m := range mutants {
		for _, in := range m.inserts {
			all = append(all, numbered{in, i})
		}
	}
	// Mutants are found from the outer to the inner: those open in this order, and close in the other.
	slices.SortStableFunc(all, func(a, b numbered) int {
		switch {
		case a.at != b.at:
			return cmp.Compare(a.at, b.at)
		case a.closes && b.closes:
			return cmp.Compare(b.of, a.of)
		case a.closes:
			return -1
		case b.closes:
			return 1
		}
		return cmp.Compare(a.of, b.of)
	})
	from := 0
	for _, in := range all {
		mutated = append(mutated, text[from:in.at]...)
		places = append(places, place{len(mutated), mutants[in.of].name})
		mutated = append(mutated, in.text...)
		from = in.at + in.drop
	}
	return append(mutated, text[from:]...), places
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

func (f *finder) source(from, to token.Pos) string {
	return string(f.text[f.offset(from):f.offset(to)])
}

// add adds a mutant of a node. In the inserted texts # stands for its name.
func (f *finder) add(n ast.Node, with string, inserts ...insert) {
	name := strconv.Itoa(len(f.found))
	for i := range inserts {
		inserts[i].text = strings.ReplaceAll(inserts[i].text, "#", strconv.Quote(name))
	}
	f.found = append(f.found, mutant{name, f.set.Position(n.Pos()).Line, fmt.Sprintf("%q in place of %q", with, f.source(n.Pos(), n.End())), inserts})
}

// around inserts texts before and after a node.
func (f *finder) around(n ast.Node, before, after string) []insert {
	return []insert{{at: f.offset(n.Pos()), text: before}, {at: f.offset(n.End()), text: after, closes: true}}
}

// logged are statements that no test is about.
var logged = regexp.MustCompile(`(?i)^\S*log(ger)?(\(\))?\.(Debug|Info|Warn|Error|Log)\w*\(|^panic\(`)

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.simple[n.Init] = true
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.simple[n.Init], f.simple[n.Post] = true, true
	case *ast.CommClause:
		f.simple[n.Comm] = true
	case *ast.SwitchStmt:
		f.simple[n.Init] = true
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, condition := range c.(*ast.CaseClause).List {
					f.negate(condition)
				}
			}
		}
	case *ast.BinaryExpr:
		f.swap(n)
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.AssignStmt:
		assign, ok := n.(*ast.AssignStmt)
		if !f.simple[n.(ast.Stmt)] && (!ok || assign.Tok != token.DEFINE) && !logged.MatchString(f.source(n.Pos(), n.End())) {
			f.add(n, "", f.around(n, "if !mutantIs(#) { ", " }")...)
		}
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			f.replace(n, result)
		}
	case *ast.BranchStmt:
		if n.Label == nil && n.Tok == token.CONTINUE {
			f.add(n, "break", f.around(n, "if mutantIs(#) { break }; ", "")...)
		}
	}
	return true
}

// swap swaps the operator of an expression.
func (f *finder) swap(n *ast.BinaryExpr) {
	other, ok := swapped[n.Op]
	if !ok {
		return
	}
	var inserts []insert
	switch n.Op {
	case token.LAND, token.LOR: // a || b is !(!a && !b)
		inserts = append(f.around(n.X, "(mutantIs(#) != ((mutantIs(#) != (", "))"), f.around(n.Y, "(mutantIs(#) != (", "))))")...)
	case token.EQL, token.NEQ:
		inserts = f.around(n, "(mutantIs(#) != (", "))")
	default:
		function := "mutantCompared"
		if n.Op == token.ADD || n.Op == token.SUB {
			function = "mutantSum"
		}
		inserts = f.around(n, fmt.Sprintf("%s(#, %q, ", function, n.Op), ")")
		inserts = append(inserts, insert{at: f.offset(n.OpPos), drop: len(n.Op.String()), text: ","})
	}
	f.add(n, f.source(n.X.Pos(), n.X.End())+" "+other.String()+" "+f.source(n.Y.Pos(), n.Y.End()), inserts...)
}

// negate negates a condition, unless swapping its operator does that.
func (f *finder) negate(condition ast.Expr) {
	if b, ok := condition.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.add(condition, "!("+f.source(condition.Pos(), condition.End())+")", f.around(condition, "(mutantIs(#) != (", "))")...)
}

// replace replaces a constant that is returned.
func (f *finder) replace(n *ast.ReturnStmt, result ast.Expr) {
	var other string
	switch result := result.(type) {
	case *ast.Ident:
		other = f.next[result.Name]
	case *ast.BasicLit:
		if number, err := strconv.Atoi(result.Value); err == nil {
			other = strconv.Itoa(number + 1)
		}
	}
	if other != "" {
		mutated := f.source(n.Pos(), result.Pos()) + other + f.source(result.End(), n.End())
		f.add(result, other, f.around(n, "if mutantIs(#) { "+mutated+" }; ", "")...)
	}
}
