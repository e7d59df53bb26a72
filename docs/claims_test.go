package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

var (
	testName = regexp.MustCompile("(?:`([a-z][a-zA-Z0-9/]*)` )?\\b((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)
)

// TestNamedTests looks up every test that a page names, in the package that stands before it.
func TestNamedTests(t *testing.T) {
	folders := map[string][]string{} // of each test
	walk(t, ".go", func(path, text string) {
		if folder, ok := strings.CutPrefix(filepath.Dir(path), "../"); ok && strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				folders[m[1]] = append(folders[m[1]], folder)
			}
		}
	})
	found := 0
	walk(t, ".md", func(path, text string) {
		if filepath.Dir(path) != "../docs" {
			return
		}
		for _, m := range testName.FindAllStringSubmatch(strings.ReplaceAll(text, "\n", " "), -1) {
			found++
			if len(folders[m[2]]) == 0 || m[1] != "" && !slices.Contains(folders[m[2]], m[1]) {
				t.Errorf("%s names %s of %q, which is in %q", path, m[2], m[1], folders[m[2]])
			}
		}
	})
	if found < 50 {
		t.Errorf("only %d tests found: is the pattern right?", found)
	}
}

// TestActionsArePinned: a workflow names each action by its commit, with the version for readers.
func TestActionsArePinned(t *testing.T) {
	files, err := filepath.Glob("../.github/workflows/*.yaml")
	kit.NoError(t, err)
	pinned := regexp.MustCompile(`^[^@]+@[0-9a-f]{40} # v[0-9.]+$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		kit.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			if _, action, ok := strings.Cut(strings.TrimSpace(line), "uses: "); ok && !pinned.MatchString(action) {
				t.Errorf("%s: %s: name the commit and the version: owner/name@<40 digits> # v1.2.3", file, action)
			}
		}
	}
	if len(files) == 0 {
		t.Error("there are no workflows")
	}
}
