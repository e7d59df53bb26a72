// Command mutate plants small faults into files, one at a time, and runs the tests of their packages on each. It prints the
// faults that no test notices, and the share of those that one does.
//
//	go run ./hack/mutate [-run REGEXP] pkg/agent/internal/inbox/decide.go ...
//
// Libraries that do this (gremlins 0.6) leave out what the report of test coverage has no counter for: the conditions of
// cases, of which decisions are made here.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

func main() {
	run := flag.String("run", "", "regular expression: the tests to run")
	limit := flag.Duration("timeout", time.Minute, "how long the tests of a package may take")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: mutate [-run REGEXP] FILE...")
		os.Exit(2)
	}
	for _, file := range flag.Args() {
		if err := score(context.Background(), file, *run, *limit); err != nil {
			fmt.Fprintln(os.Stderr, "mutate:", err)
			os.Exit(1)
		}
	}
}

// fate is what becomes of a mutant.
type fate int

const (
	lives  fate = iota // no test notices it
	killed             // a test fails, or does not end
	broken             // it is no program
)

// score tries all mutants of a file, and prints those that live.
func score(ctx context.Context, file, run string, limit time.Duration) error {
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return err
	}
	mutants, err := mutantsOf(file, text)
	if err != nil {
		return err
	}
	t := &tester{file: file, text: text, args: []string{"-run=" + run, fmt.Sprintf("-timeout=%v", limit)}}
	f, out, err := t.try(ctx, mutant{})
	if err != nil {
		return err
	}
	if f != lives {
		return fmt.Errorf("the tests of %s fail as it is:\n%s", file, out)
	}
	fates := make([]fate, len(mutants))
	var group sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i, m := range mutants {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f, out, err := t.try(ctx, m)
			if err != nil {
				fmt.Fprintln(os.Stderr, "mutate:", err, out)
				f = broken
			}
			fates[i] = f
		})
	}
	group.Wait()
	count := map[fate]int{}
	for i, m := range mutants {
		count[fates[i]]++
		if fates[i] == lives {
			fmt.Printf("%s:%d lives: %s\n", file, m.line, m.what)
		}
	}
	programs := count[lives] + count[killed]
	fmt.Printf("%s: %d of %d faults are noticed, %d %%\n", file, count[killed], programs, 100*count[killed]/max(programs, 1))
	return nil
}

// tester runs the tests of the package of a file.
type tester struct {
	file string
	text []byte
	args []string
}

// try runs the tests on a mutant.
func (t *tester) try(ctx context.Context, m mutant) (fate, string, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return broken, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := filepath.Abs(t.file)
	if err != nil {
		return broken, "", err
	}
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	plan, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err == nil {
		err = os.WriteFile(changed, m.apply(t.text), 0o600)
	}
	if err == nil {
		err = os.WriteFile(overlay, plan, 0o600)
	}
	if err != nil {
		return broken, "", err
	}
	args := append([]string{"test", "-overlay", overlay, "-vet=off", "-count=1", "-failfast"}, t.args...)
	c := exec.CommandContext(ctx, "go", append(args, "./"+filepath.Dir(t.file))...) //nolint:gosec // the user names it
	out, err := c.CombinedOutput()
	switch {
	case err == nil:
		return lives, "", nil
	case strings.Contains(string(out), "[build failed]"):
		return broken, string(out), nil
	}
	return killed, string(out), nil
}
