// Command testrun runs `go test -json` commands, shows one line for each package that ends, the output of
// what failed, and last what failed, how many tests passed, and which were left out for want of which
// program. Commands run one after another; those after "beside" run beside those before it, until "then":
//
//	go run ./hack/testrun 'go test -json ./...' beside 'go test -C test/bench -json ./...' then 'go test -json -soak ./test/faults'
//
// Its exit status is 1 if a test or a command failed, or no test ran. Times are wall clock times.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// quiet is how long nothing is printed before a line says what still runs.
const quiet = 20 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testrun 'GO TEST -JSON COMMAND'... [beside COMMAND...] [then COMMAND...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	events := make(chan event)
	go func() {
		defer close(events)
		for _, phase := range split(os.Args[1:], "then") {
			var lanes sync.WaitGroup
			for _, commands := range split(phase, "beside") {
				lanes.Go(func() {
					for _, command := range commands {
						if ctx.Err() == nil {
							run(ctx, command, events)
						}
					}
				})
			}
			lanes.Wait()
		}
	}()
	status := newReport(os.Stdout, time.Now()).follow(events)
	stop()
	os.Exit(status)
}

// split splits words at each separator.
func split(words []string, separator string) (parts [][]string) {
	for {
		i := slices.Index(words, separator)
		if i < 0 {
			return append(parts, words)
		}
		parts, words = append(parts, words[:i]), words[i+1:]
	}
}

// event is a line of `go test -json` (`go doc test2json`), or the end of a command.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64 // seconds

	failed string // the command that failed
}

// run runs a command and sends what it prints. The end of ctx ends the command, and it is waited for.
func run(ctx context.Context, command string, events chan<- event) {
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) } // with its tests
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Run()
		_ = writer.Close()
	}()
	scan(reader, events)
	if err := <-ended; err != nil {
		events <- event{failed: fmt.Sprintf("%v: %s", err, command)}
	}
}

// scan sends the events in r. Lines that are none are of the go command itself.
func scan(r io.Reader, events chan<- event) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				e = event{Action: "build-output", Output: line}
			}
			events <- e
		}
		if err != nil {
			return
		}
	}
}

// test is a test or subtest that has not ended.
type test struct {
	output  strings.Builder
	started time.Time
	paused  bool // until others have ended
}

// pkg is a package whose tests run.
type pkg struct {
	tests                   map[string]*test // "" is the package itself
	passed, failed, skipped int
}

// report counts and prints. One goroutine calls it.
type report struct {
	out                             io.Writer
	begin                           time.Time
	running                         map[string]*pkg
	packages                        int
	passed, failed, skipped, broken int
	leftOut                         map[string]int // tests by the program that is missing
	failures                        []string       // what failed, with the lines that say why
}

func newReport(out io.Writer, begin time.Time) *report {
	return &report{out: out, begin: begin, running: map[string]*pkg{}, leftOut: map[string]int{}}
}

// follow prints events until there are no more, and returns the exit status.
func (r *report) follow(events <-chan event) int {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return r.end()
			}
			if r.add(e) {
				ticker.Reset(quiet)
			}
		case now := <-ticker.C:
			r.stillRunning(now)
		}
	}
}

// needs is how a test says that it is left out, see kit.Program.
var needs = regexp.MustCompile(`left out: needs ([^;\n]+)`)

// add counts e. It reports whether something was printed.
func (r *report) add(e event) bool {
	if e.failed != "" {
		r.broken++
		fmt.Fprintf(r.out, "FAIL %.120s\n", e.failed)
		return true
	}
	if e.Action == "build-output" {
		if strings.HasPrefix(e.Output, "go: downloading ") {
			return false
		}
		fmt.Fprint(r.out, e.Output)
		return true
	}
	if e.Package == "" {
		return false
	}
	p := r.running[e.Package]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		r.running[e.Package] = p
	}
	t := p.tests[e.Test]
	if t == nil {
		t = &test{started: time.Now()}
		p.tests[e.Test] = t
	}
	if e.Action == "output" {
		t.output.WriteString(e.Output)
	}
	if e.Test == "" {
		return r.endPackage(p, e)
	}
	switch e.Action {
	case "pass":
		p.passed++
	case "skip":
		p.skipped++
		if missing := needs.FindStringSubmatch(t.output.String()); missing != nil {
			r.leftOut[missing[1]]++
		}
	case "fail":
		p.failed++
		fmt.Fprintf(r.out, "--- FAIL %s %s (%.1fs)\n%s", e.Package, e.Test, e.Elapsed, t.output.String())
		r.failures = append(r.failures, fmt.Sprintf("FAIL %s %s\n%s", e.Package, e.Test, strings.Join(said(t.output.String()), "")))
	case "pause", "cont":
		t.paused = e.Action == "pause"
		return false
	default:
		return false
	}
	delete(p.tests, e.Test)
	return e.Action == "fail"
}

// says matches the first line of what a test has said itself, and of a data race.
var says = regexp.MustCompile(`(?m)^ +\w+\.go:\d+: .*\n|^.*(?:DATA RACE|race detected).*\n|^panic: .*\n`)

// said returns the first lines of output that say why a test failed.
func said(output string) []string { return says.FindAllString(output, 5) }

// endPackage counts a package when e says that it has ended.
func (r *report) endPackage(p *pkg, e event) bool {
	verdict := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "-"}[e.Action]
	if verdict == "" {
		return false
	}
	delete(r.running, e.Package)
	r.passed, r.failed, r.skipped = r.passed+p.passed, r.failed+p.failed, r.skipped+p.skipped
	if verdict == "-" { // it has no tests
		return false
	}
	r.packages++
	if verdict == "FAIL" && p.failed == 0 { // it did not build, or its process died
		r.broken++
		for _, name := range slices.Sorted(maps.Keys(p.tests)) {
			output := p.tests[name].output.String()
			fmt.Fprint(r.out, output)
			r.failures = append(r.failures, fmt.Sprintf("FAIL %s %s\n%s", e.Package, name, strings.Join(said(output), "")))
		}
	}
	fmt.Fprintf(r.out, "%5.0fs  %-4s %-60s %4d tests in %.1fs\n", time.Since(r.begin).Seconds(), verdict,
		strings.TrimPrefix(e.Package, "github.com/workwire/workwire/"), p.passed+p.failed, e.Elapsed)
	return true
}

// stillRunning prints the tests that run, the oldest first.
func (r *report) stillRunning(now time.Time) {
	type running struct {
		name string
		test *test
	}
	var tests []running
	for name, p := range r.running {
		for test, t := range p.tests {
			if test != "" && !t.paused && !strings.Contains(test, "/") {
				tests = append(tests, running{strings.TrimPrefix(name, "github.com/workwire/workwire/") + " " + test, t})
			}
		}
	}
	slices.SortFunc(tests, func(a, b running) int { return a.test.started.Compare(b.test.started) })
	var names []string
	for _, t := range tests[:min(len(tests), 3)] {
		names = append(names, fmt.Sprintf("%s (%.0fs)", t.name, now.Sub(t.test.started).Seconds()))
	}
	fmt.Fprintf(r.out, "%5.0fs  ... %s\n", now.Sub(r.begin).Seconds(), cmp.Or(strings.Join(names, ", "), "building tests"))
}

// end prints the last line and returns the exit status.
func (r *report) end() int {
	line := fmt.Sprintf("%d passed, %d failed", r.passed, r.failed+r.broken)
	if r.skipped > 0 {
		line += fmt.Sprintf(", %d skipped", r.skipped)
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(r.leftOut)) {
		missing = append(missing, fmt.Sprintf("%s (%d)", name, r.leftOut[name]))
	}
	if len(missing) > 0 {
		line += "; left out for want of a program: " + strings.Join(missing, ", ")
	}
	fmt.Fprint(r.out, strings.Join(r.failures, ""))
	fmt.Fprintf(r.out, "%d packages in %.0f s\n%s\n", r.packages, time.Since(r.begin).Seconds(), line)
	if r.failed+r.broken > 0 || r.passed == 0 {
		return 1
	}
	return 0
}
