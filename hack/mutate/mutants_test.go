package main

import (
	"slices"
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
	mutants, err := mutantsOf("p.go", []byte(text))
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
	if mutated := string(mutants[0].apply([]byte(text))); len(mutated) != len(text)+3 {
		t.Errorf("the first mutant is\n%s", mutated)
	}
}
