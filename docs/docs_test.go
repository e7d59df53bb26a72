// Package docs tests that what the code says about the documentation is so.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

var (
	wrapped  = regexp.MustCompile(`\n\s*//\s*`)
	citation = regexp.MustCompile(`docs/protocol\.md, ([A-Z][A-Za-z ]*)`)
	heading  = regexp.MustCompile(`(?m)^## (.+)$`)
	linked   = regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
)

// TestCitationsOfTheProtocol looks up every section of protocol.md that the code names.
func TestCitationsOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("protocol.md")
	kit.NoError(t, err)
	sections := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
		sections[m[1]] = true
	}
	found := 0
	walk(t, ".go", func(path, text string) {
		for _, m := range citation.FindAllStringSubmatch(wrapped.ReplaceAllString(text, " "), -1) {
			found++
			if !sections[strings.TrimSpace(m[1])] {
				t.Errorf("%s names section %q, which docs/protocol.md does not have", path, m[1])
			}
		}
	})
	if found < 10 {
		t.Errorf("only %d citations found: is the pattern right?", found)
	}
}

// TestLinks follows every link from one file of the repository to another.
func TestLinks(t *testing.T) {
	walk(t, ".md", func(path, text string) {
		for _, m := range linked.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			}
		}
	})
}

func walk(t *testing.T, extension string, visit func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != extension || strings.HasSuffix(path, "docs_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		visit(path, string(text))
		return nil
	})
	kit.NoError(t, err)
}
