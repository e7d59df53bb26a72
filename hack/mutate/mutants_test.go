package main

import (
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMutantsOf(t *testing.T) {
	text := `package p

const (
	yes = 1
	no  = 2
)

func f(a, b int, c bool) int {
	switch {
	case a < b && c:
		return yes
	case a == b:
		return 0
	}
	if c {
		a++
	}
	a = b
	return no
}
`
	_, mutants, err := mutantsOf("p.go", []byte(text), regexp.MustCompile("^f$"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mutants {
		got = append(got, m.what)
	}
	want := []string{
		`"!(a < b && c)" in place of "a < b && c"`, `"a < b || c" in place of "a < b && c"`, `"a <= b" in place of "a < b"`, `"no" in place of "yes"`,
		`"a != b" in place of "a == b"`, `"1" in place of "0"`, `"!(c)" in place of "c"`, `"" in place of "a++"`, `"" in place of "a = b"`, `"yes" in place of "no"`,
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("mutants\n%q\nwant\n%q", got, want)
	}
	mutated, _ := together([]byte(text), mutants)
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", mutated, 0); err != nil {
		t.Errorf("%v in\n%s", err, mutated)
	}
	condition := `case (mutantIs("0") != ((mutantIs("1") != ((mutantIs("1") != (mutantCompared("2", "<", a , b))) && (mutantIs("1") != (c)))))):`
	if !strings.Contains(string(mutated), condition) {
		t.Errorf("in\n%s\nis no\n%s", mutated, condition)
	}
}

func TestRefused(t *testing.T) {
	got := refused("/dir/mutants.go:2:7: no\n", []byte("one\ntwo six"), []place{{3, "a"}, {6, "b"}, {11, "c"}})
	if len(got) != 1 || !got["b"] {
		t.Errorf("refused are %v", got)
	}
}
