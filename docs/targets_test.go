package docs

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTargetsAreRun: CI runs every target of the Makefile that README.md or CONTRIBUTING.md names, so that
// none of them can stop working unnoticed.
func TestTargetsAreRun(t *testing.T) {
	read := func(files ...string) string {
		var all strings.Builder
		for _, file := range files {
			data, err := os.ReadFile("../" + file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(data)
		}
		return all.String()
	}
	run := read(".ci/run", "hack/check.sh", "hack/e2e.sh", "hack/verify-generated.sh")
	named := regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(read("README.md", "CONTRIBUTING.md"), -1)
	if len(named) < 5 {
		t.Fatalf("found only %d targets", len(named))
	}
	for _, target := range named {
		if !regexp.MustCompile(`(?m)^[^#\n]*make (?:--no-print-directory )?` + target[1] + `\b`).MatchString(run) {
			t.Errorf("make %s: documented, but CI does not run it", target[1])
		}
	}
}
