package examples

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

const (
	root    = "../.."
	columns = 5
)

var (
	// proofs are "`package` TestA, TestB".
	proofs  = regexp.MustCompile("`([a-z0-9/-]+)` (Test[A-Za-z0-9]+(?:, Test[A-Za-z0-9]+)*)")
	links   = regexp.MustCompile(`\]\(([^)#]+)\)`)
	pending = regexp.MustCompile(`^Not done\b`)
)

// TestFeatureTable: docs/features.md names tests and files that there are, says of every row how it
// is proven or that it is not, and leaves no example out.
func TestFeatureTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "features.md"))
	kit.NoError(t, err)
	shown, known, rows := map[string]bool{}, map[string]map[string]bool{}, 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| heading ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != columns {
			t.Errorf("%d cells, want %d: %s", len(cells), columns, line)
			continue
		}
		heading, proof := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[columns-1])
		for _, link := range links.FindAllStringSubmatch(line, -1) {
			file := filepath.Join(root, "docs", link[1])
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", heading, err)
			}
			shown[filepath.Clean(file)] = true
		}
		found := proofs.FindAllStringSubmatch(proof, -1)
		for _, match := range found {
			folder := match[1]
			if known[folder] == nil {
				known[folder] = testsIn(t, folder)
			}
			for _, name := range strings.Split(match[2], ", ") {
				if !known[folder][name] {
					t.Errorf("%s: there is no %s in %s", heading, name, folder)
				}
			}
		}
		notDone := pending.MatchString(strings.TrimSpace(cells[1]))
		switch {
		case proof == "not done" && notDone, proof == "nothing to prove" && !notDone:
		case strings.Contains(proof, " only: ") != notDone:
			t.Errorf("%s: %q, and yet %q", heading, cells[1], proof)
		case len(found) == 0:
			t.Errorf("%s: no test is named in %q", heading, proof)
		}
	}
	if rows < 50 {
		t.Errorf("only %d rows were read", rows)
	}
	for _, file := range files(t) {
		if !shown[filepath.Join(root, "examples", file)] {
			t.Errorf("examples/%s is in no row", file)
		}
	}
}

// testsIn gives the names of the test functions in a folder.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	kit.NoError(t, err)
	names := map[string]bool{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		kit.NoError(t, err)
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") {
				names[function.Name.Name] = true
			}
		}
	}
	return names
}
