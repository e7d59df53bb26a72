package demo_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/workwire/workwire/test/kit"
)

// guide is the quick start of docs/sdk.md: the program, and its commands by line.
type guide struct {
	program  string
	commands []string
}

var (
	section = regexp.MustCompile("(?ms)^## Quick start\n(.*?)^## ")
	program = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
	command = regexp.MustCompile(`(?m)^    ((?:mkdir|go|\.\./workwire/bin/kubectl) .*)$`)
)

func readGuide(t testing.TB) guide {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/sdk.md")
	kit.NoError(t, err)
	text := section.FindStringSubmatch(string(page))
	if text == nil {
		t.Fatal("docs/sdk.md has no quick start")
	}
	g := guide{}
	if code := program.FindStringSubmatch(text[1]); code != nil {
		g.program = code[1]
	}
	for _, line := range command.FindAllStringSubmatch(program.ReplaceAllString(text[1], ""), -1) {
		g.commands = append(g.commands, line[1])
	}
	return g
}

// followGuide does what docs/sdk.md says, literally, in a module outside the repository, with
// the demo that runs. Modules come from the cache alone.
func followGuide(s *show) {
	s.Helper()
	g := readGuide(s)
	if g.program == "" || len(g.commands) != 6 {
		s.Fatalf("the quick start has %d commands and a program of %d bytes: are the patterns right?", len(g.commands), len(g.program))
	}
	// Beside the module is the checkout, which has this demo in .demo.
	checkout, err := filepath.Abs("../../../..")
	kit.NoError(s, err)
	beside := s.TempDir()
	here := filepath.Join(beside, "workwire")
	kit.NoError(s, os.Mkdir(here, 0o700))
	entries, err := os.ReadDir(checkout)
	kit.NoError(s, err)
	for _, entry := range entries {
		if name := entry.Name(); name != ".git" && name != ".demo" {
			kit.NoError(s, os.Symlink(filepath.Join(checkout, name), filepath.Join(here, name)))
		}
	}
	kit.NoError(s, os.Symlink(s.dir, filepath.Join(here, ".demo")))

	run := func(dir, line string) string {
		s.Helper()
		cmd := exec.CommandContext(s.Context(), "sh", "-ec", line)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOFLAGS=-trimpath", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	// What a build of the checkout has downloaded lacks go.mod files that a new module reads.
	graph := exec.CommandContext(s.Context(), "go", "mod", "graph")
	graph.Dir = checkout
	if out, err := graph.CombinedOutput(); err != nil {
		s.Fatalf("go mod graph: %v\n%s", err, out)
	}
	run(beside, g.commands[0])
	module := filepath.Join(beside, "ops")
	kit.NoError(s, os.WriteFile(filepath.Join(module, "main.go"), []byte(g.program), 0o600))
	out := ""
	for _, line := range g.commands[1:] {
		out = run(module, line)
		if strings.HasPrefix(line, "go run") && !strings.Contains(out, "settings: Applied=True Apply manifest work complete\n") {
			s.Errorf("%s prints:\n%s", line, out)
		}
	}
	if out != "green" {
		s.Errorf("at the end of the quick start the ConfigMap has %q", out)
	}
}
