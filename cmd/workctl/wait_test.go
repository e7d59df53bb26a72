package main

import (
	"bytes"
	"testing"
)

// TestLinesTo: a line for each change of a work, and none for a look that finds nothing new.
func TestLinesTo(t *testing.T) {
	var out bytes.Buffer
	show := linesTo(&out)
	for _, line := range []string{"a: Progressing", "a: Progressing", "b: Progressing", "a: Ready", "a: Ready"} {
		show(line[:1], line)
	}
	if want := "a: Progressing\nb: Progressing\na: Ready\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
