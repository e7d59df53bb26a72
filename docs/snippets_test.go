package docs

import (
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// TestSnippets: every Go snippet of a page is in a Go file of the repository, where it is compiled and,
// if it is an example, run. Indentation is ignored.
func TestSnippets(t *testing.T) {
	var compiled []string
	walk(t, ".go", func(_, text string) { compiled = append(compiled, "\n"+withoutIndent(text)) })
	snippets := 0
	walk(t, ".md", func(path, text string) {
		for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
			snippets++
			wanted, found := "\n"+withoutIndent(m[1]), false
			for _, file := range compiled {
				found = found || strings.Contains(file, wanted)
			}
			if !found {
				t.Errorf("%s has Go that no file has, so that nothing compiles it; put it into an example, such as pkg/source/example_test.go:\n%s", path, m[1])
			}
		}
	})
	if snippets < 5 {
		t.Errorf("only %d snippets found: is the pattern right?", snippets)
	}
}

func withoutIndent(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	return lines.String()
}
