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
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9]*`)
	// Tests with their package: "`package` TestA, TestB", "`TestA`, `TestB` and `TestC` in `package`".
	after    = regexp.MustCompile("`([a-z][a-zA-Z0-9/-]*)` ((?:(?:Test|Fuzz)[A-Z][A-Za-z0-9]*)(?:(?:, | and )(?:Test|Fuzz)[A-Z][A-Za-z0-9]*)*)")
	before   = regexp.MustCompile("((?:`(?:Test|Fuzz)[A-Z][A-Za-z0-9/_]*`(?:, | and )?)+) in `([a-z][a-zA-Z0-9/-]*)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)
)

// TestNamedTests looks up every test that a page names, in the package that stands before or after it.
func TestNamedTests(t *testing.T) {
	folders := map[string][]string{} // of each test
	walk(t, ".go", func(path, text string) {
		if folder, ok := strings.CutPrefix(filepath.Dir(path), "../"); ok && strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				folders[m[1]] = append(folders[m[1]], folder)
			}
		}
	})
	found, placed := 0, 0
	walk(t, ".md", func(path, text string) {
		if filepath.Dir(path) != "../docs" {
			return
		}
		text = strings.ReplaceAll(text, "\n", " ")
		for _, name := range testName.FindAllString(text, -1) {
			found++
			if len(folders[name]) == 0 {
				t.Errorf("%s names %s, which is nowhere", path, name)
			}
		}
		in := func(folder, list string) {
			for _, name := range testName.FindAllString(list, -1) {
				placed++
				if !slices.Contains(folders[name], folder) {
					t.Errorf("%s names %s in %q, which is in %q", path, name, folder, folders[name])
				}
			}
		}
		for _, m := range after.FindAllStringSubmatch(text, -1) {
			in(m[1], m[2])
		}
		for _, m := range before.FindAllStringSubmatch(text, -1) {
			in(m[2], m[1])
		}
	})
	if found < 50 || placed < 300 {
		t.Errorf("only %d tests found, and %d with their package: are the patterns right?", found, placed)
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
