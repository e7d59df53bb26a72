// Command replay runs the test binary of test/sim, built for WebAssembly, in a machine whose clock and whose randomness
// are given: one thread, so that the scheduler of Go, the order of maps and of select, identifiers and keys are the same
// in each run. Each seed has a machine of its own, so that what happens in it depends on the seed alone.
// hack/simulate.sh builds both.
//
//	replay [-seed=7] [-seeds=1] [-minutes=60] [-leave-out=3,7-12] [-twice] [-shrink] [-story] [-corpus=FILE] sim.wasm DIR
//
// DIR gets the stories of seeds that fail.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	first    uint64
	seeds    int
	minutes  time.Duration // run seeds for so long, however many; 0: seeds
	leaveOut string
	twice    bool
	shrink   bool
	story    bool
	corpus   string
}

func main() {
	var o options
	flag.Uint64Var(&o.first, "seed", 1, "the first seed")
	flag.IntVar(&o.seeds, "seeds", 20, "how many seeds to run")
	minutes := flag.Int("minutes", 0, "run seeds for so many minutes, however many they are")
	flag.StringVar(&o.leaveOut, "leave-out", "", "numbers of decisions that do not happen, as in 3,7-12")
	flag.BoolVar(&o.twice, "twice", false, "run each seed twice, and compare")
	flag.BoolVar(&o.shrink, "shrink", false, "leave out as much as possible of the first seed, so that it still fails")
	flag.BoolVar(&o.story, "story", false, "write what happened in seeds that do not fail, too")
	flag.StringVar(&o.corpus, "corpus", "", "run what this file lists first")
	flag.Parse()
	o.minutes = time.Duration(*minutes) * time.Minute
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay [FLAG...] WASM DIR")
		os.Exit(2)
	}
	if err := run(context.Background(), o, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, file, dir string) error {
	m, err := newMachine(ctx, file)
	if err != nil {
		return err
	}
	if o.shrink {
		return shrink(ctx, m, trial{o.first, o.leaveOut}, dir)
	}
	r := runner{machine: m, options: o, dir: dir, began: time.Now()}
	return r.all(ctx)
}

// runner runs seeds, as many at a time as there are processors, and prints what they say in order.
type runner struct {
	machine *machine
	options options
	dir     string
	began   time.Time
}

// errFailed says that a seed has failed, which it has said itself.
var errFailed = errors.New("a seed has failed")

func (r *runner) all(ctx context.Context) error {
	next, err := r.trials()
	if err != nil {
		return err
	}
	count, simultaneous := 0, runtime.GOMAXPROCS(0)
	running := make(chan chan func() error, simultaneous)
	stop := make(chan struct{})
	defer close(stop)
	go func() { // owns running
		defer close(running)
		for t, more := next(); more; t, more = next() {
			done := make(chan func() error, 1)
			select {
			case running <- done:
			case <-stop:
				return
			}
			go func() { done <- r.one(ctx, t) }()
		}
	}()
	for done := range running {
		if err := (<-done)(); err != nil {
			return err
		}
		count++
	}
	took := time.Since(r.began)
	again := ""
	if r.options.twice {
		again = ", each twice, and the same again"
	}
	fmt.Printf("%d seeds in %s%s\n", count, took.Round(time.Second), again)
	return nil
}

// trials returns a function that returns the next one.
func (r *runner) trials() (func() (trial, bool), error) {
	known, err := readCorpus(r.options.corpus)
	if err != nil {
		return nil, err
	}
	seed := r.options.first
	return func() (trial, bool) {
		if len(known) > 0 {
			t := known[0]
			known = known[1:]
			return t, true
		}
		if r.options.minutes > 0 && time.Since(r.began) > r.options.minutes || r.options.minutes == 0 && seed >= r.options.first+uint64(r.options.seeds) { //nolint:gosec // not negative
			return trial{}, false
		}
		seed++
		return trial{seed - 1, r.options.leaveOut}, true
	}, nil
}

// readCorpus reads trials: on each line a seed, what to leave out or -, and what it has found. Without a file there are none.
func readCorpus(file string) ([]trial, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	var trials []trial
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		var t trial
		if _, err := fmt.Sscan(fields[0], &t.seed); err != nil || len(fields) < 2 {
			return nil, fmt.Errorf("read corpus %s: %q is no seed with what to leave out", file, strings.TrimSpace(line))
		}
		if fields[1] != "-" {
			t.leaveOut = fields[1]
		}
		trials = append(trials, t)
	}
	return trials, nil
}

// one runs a trial, and returns what prints it.
func (r *runner) one(ctx context.Context, t trial) func() error {
	result, err := r.machine.run(ctx, t, r.options.story, r.dir)
	if err == nil && r.options.twice && !result.failed {
		err = r.again(ctx, t, result)
	}
	return func() error {
		if err != nil {
			return err
		}
		fmt.Print(result.output)
		if result.failed {
			return fmt.Errorf("%w; again: make simulate SEEDS=1 %s; with less: make simulate SHRINK=1 %s", errFailed, t, t)
		}
		return nil
	}
}

// again runs a trial once more.
func (r *runner) again(ctx context.Context, t trial, before *result) error {
	after, err := r.machine.run(ctx, t, r.options.story, "")
	if err == nil && after.output != before.output {
		err = fmt.Errorf("%s did not do the same twice:\n%s%s", t, before.output, after.output)
	}
	return err
}
