// Package docs tests that what the code says about the documentation is so.
package docs

import (
	"fmt"
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
	linked   = regexp.MustCompile(`\]\(([^)#:\s]*)(#[^)\s]*)?\)`)

	quoted      = regexp.MustCompile("`([^`]+)`")
	inlineCode  = regexp.MustCompile("`[^`\n]+`")
	fenced      = regexp.MustCompile("(?ms)^```.*?^```")
	anyHeading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linkText    = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
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

// TestLinks follows every link within the repository, to a file or to a heading in it.
func TestLinks(t *testing.T) {
	pages := map[string]string{}
	walk(t, ".md", func(path, text string) { pages[path] = text })
	for path, text := range pages {
		for _, m := range linked.FindAllStringSubmatch(inlineCode.ReplaceAllString(withoutCode(text), ""), -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
				continue
			}
			if page, ok := pages[target]; ok && m[2] != "" && !anchors(page)[m[2][1:]] {
				t.Errorf("%s links to %s%s, and there is no such heading", path, m[1], m[2])
			}
		}
	}
}

// TestSymptoms: what troubleshooting.md quotes in its headings is what a program says.
func TestSymptoms(t *testing.T) {
	page, err := os.ReadFile("troubleshooting.md")
	kit.NoError(t, err)
	var said strings.Builder
	walk(t, ".go", func(path, text string) {
		if !strings.HasSuffix(path, "_test.go") {
			said.WriteString(text)
		}
	})
	quotes := 0
	for _, title := range heading.FindAllStringSubmatch(string(page), -1) {
		for _, m := range quoted.FindAllStringSubmatch(title[1], -1) {
			if quotes++; !strings.Contains(said.String(), m[1]+"\"") {
				t.Errorf("%q is in the heading %q, and no program says it", m[1], title[1])
			}
		}
	}
	if quotes < 15 {
		t.Errorf("only %d quotes found: is the pattern right?", quotes)
	}
}

// base is an order to apply what overlays leave parts of out.
var base = regexp.MustCompile("(?:apply -k |apply `|and `)deploy/(?:crds|kustomize/(?:agent|hub)/rbac)`")

// TestBasesAreNotApplied: no page has somebody apply definitions or rights past an overlay, which may leave them out on purpose.
func TestBasesAreNotApplied(t *testing.T) {
	walk(t, ".md", func(path, text string) {
		for _, order := range base.FindAllString(text, -1) {
			if !strings.Contains(text, "Do not "+order) {
				t.Errorf("%s: %s", path, order)
			}
		}
	})
}

// withoutCode returns a page without its blocks of code, in which # begins a comment.
func withoutCode(text string) string { return fenced.ReplaceAllString(text, "") }

// anchors returns the names by which GitHub links to the headings of a page.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range anyHeading.FindAllStringSubmatch(withoutCode(page), -1) {
		title := strings.ToLower(linkText.ReplaceAllString(m[1], "$1"))
		name := strings.ReplaceAll(notInAnchor.ReplaceAllString(title, ""), " ", "-")
		unique := name
		for n := 1; found[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		found[unique] = true
	}
	return found
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
