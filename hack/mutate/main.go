// Command mutate plants small faults into files, one at a time, and runs the tests of their packages on each. It prints the
// faults that no test notices, and the share of those that one does.
//
//	go run ./hack/mutate [-run REGEXP] [-skip REGEXP] [-tests DIRECTORY] [-func REGEXP] pkg/agent/internal/inbox/decide.go ...
//
// All faults of a file are compiled at once; the environment of a run says which is there. Libraries that do this
// (gremlins 0.6) compile each, and leave out what the report of test coverage has no counter for: the conditions of cases,
// of which decisions are made here.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"
)

func main() {
	run := flag.String("run", "", "regular expression: the tests to run")
	skip := flag.String("skip", "", "regular expression: the tests to leave out")
	tests := flag.String("tests", "", "directory of the tests to run; that of each file, if empty")
	funcs := flag.String("func", "", "regular expression: the functions to plant faults into")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutate [-run REGEXP] [-skip REGEXP] [-tests DIRECTORY] [-func REGEXP] FILE...")
		os.Exit(2)
	}
	functions, err := regexp.Compile(*funcs)
	for _, file := range flag.Args() {
		if err == nil {
			err = score(context.Background(), file, cmp.Or(*tests, filepath.Dir(file)), []string{"-test.run=" + *run, "-test.skip=" + *skip}, functions)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// score tries all mutants of a file, and prints those that live.
func score(ctx context.Context, file, tests string, chosen []string, functions *regexp.Regexp) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	pkg, mutants, err := mutantsOf(file, text, functions)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &build{file: file, tests: tests, chosen: chosen, pkg: pkg, dir: dir}
	mutants, err = b.compile(ctx, text, mutants)
	if err != nil {
		return err
	}
	start := time.Now()
	if out, err := b.test(ctx, "", 10*time.Minute); err != nil {
		return fmt.Errorf("the tests of %s fail as it is: %w\n%s", file, err, out)
	}
	limit := 5*time.Since(start) + 5*time.Second // endless loops are noticed by it
	lives := make([]bool, len(mutants))
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, m := range mutants {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			_, err := b.test(ctx, m.name, limit)
			lives[i] = err == nil
		})
	}
	group.Wait()
	killed := len(mutants)
	for i, m := range mutants {
		if lives[i] {
			killed--
			fmt.Printf("%s:%d lives: %s\n", file, m.line, m.what)
		}
	}
	fmt.Printf("%s: %d of %d faults are noticed, %d %%\n", file, killed, len(mutants), 100*killed/max(len(mutants), 1))
	return nil
}

// build is a program of the tests in a directory, with the mutants of a file.
type build struct {
	file, tests, pkg string
	chosen           []string // flags: which tests to run
	dir              string
}

func (b *build) program() string { return filepath.Join(b.dir, "tests") }

// compile builds the program, and returns the mutants that are in it: those that the compiler refuses are left out.
func (b *build) compile(ctx context.Context, text []byte, mutants []mutant) ([]mutant, error) {
	path, err := filepath.Abs(b.file)
	if err != nil {
		return nil, err
	}
	changed, added, overlay := filepath.Join(b.dir, "mutants.go"), filepath.Join(b.dir, "switches.go"), filepath.Join(b.dir, "overlay.json")
	plan, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed, filepath.Join(filepath.Dir(path), "mutant_switches.go"): added}})
	if err == nil {
		err = os.WriteFile(overlay, plan, 0o600)
	}
	if err == nil {
		err = os.WriteFile(added, fmt.Appendf(nil, switches, b.pkg), 0o600)
	}
	for err == nil {
		mutated, places := together(text, mutants)
		if err := os.WriteFile(changed, mutated, 0o600); err != nil {
			return nil, err
		}
		c := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-vet=off", "-gcflags=-e", "-ldflags=-s -w", "-o", b.program(), "./"+b.tests) //nolint:gosec // the user names it
		out, failed := c.CombinedOutput()
		if failed == nil {
			return mutants, nil
		}
		culprits := refused(string(out), mutated, places)
		if len(culprits) == 0 {
			return nil, fmt.Errorf("%w\n%s", failed, out)
		}
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool { return culprits[m.name] })
	}
	return nil, err
}

// refused returns the mutants that errors of the compiler are about: each is the last before a place that it names.
func refused(out string, mutated []byte, places []place) map[string]bool {
	names := map[string]bool{}
	for _, at := range regexp.MustCompile(`/mutants\.go:(\d+):(\d+): `).FindAllStringSubmatch(out, -1) {
		line, _ := strconv.Atoi(at[1])
		offset, _ := strconv.Atoi(at[2])
		for i, text := range bytes.SplitAfter(mutated, []byte("\n")) {
			if i+1 < line {
				offset += len(text)
			}
		}
		if i := sort.Search(len(places), func(i int) bool { return places[i].at >= offset }); i > 0 {
			names[places[i-1].mutant] = true
		}
	}
	return names
}

// test runs the tests with a mutant, and fails as they do.
func (b *build) test(ctx context.Context, mutant string, limit time.Duration) ([]byte, error) {
	c := exec.CommandContext(ctx, b.program(), append(b.chosen, "-test.short", "-test.failfast", fmt.Sprintf("-test.timeout=%v", limit))...) //nolint:gosec // it was built here
	c.Dir, c.Env = b.tests, append(os.Environ(), "MUTANT="+mutant)
	return c.CombinedOutput()
}
