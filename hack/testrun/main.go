// Command testrun runs `go test -json` commands, shows one line for each package that ends, the output of
// what failed, and last what failed, how many tests passed, and which were left out for want of which
// program. Commands run one after another; those after "beside" run beside those before it:
//
//	go run ./hack/testrun 'go test -json ./...' beside 'go test -C test/bench -json ./...'
//
// A few tests that fail run once more, each alone. Those that pass then are named in the last line: they
// depend on how busy the machine is, which is a defect to mend, and fail nobody's work until then.
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
		fmt.Fprintln(os.Stderr, "usage: testrun 'GO TEST -JSON COMMAND'... [beside COMMAND...]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	r := newReport(os.Stdout, time.Now())
	r.follow(start(ctx, os.Args[1:]))
	if again := r.again(); len(again) > 0 && ctx.Err() == nil {
		fmt.Println("once more, each alone:")
		second := newReport(os.Stdout, r.begin)
		second.follow(start(ctx, again))
		r.settle(second)
	}
	stop()
	os.Exit(r.end())
}

// start runs the commands that are written as for [main], and returns what they print. It is closed at their end.
func start(ctx context.Context, written []string) <-chan event {
	events := make(chan event)
	go func() {
		defer close(events)
		var lanes sync.WaitGroup
		for _, commands := range split(written, "beside") {
			lanes.Go(func() {
				for _, command := range commands {
					if ctx.Err() == nil {
						run(ctx, command, events)
					}
				}
			})
		}
		lanes.Wait()
	}()
	return events
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
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds

	command string // that printed it
	failed  string // how the command failed
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
	scan(reader, command, events)
	if err := <-ended; err != nil {
		events <- event{command: command, failed: err.Error()}
	}
}

// scan sends the events in r. Lines that are none are of the go command itself.
func scan(r io.Reader, command string, events chan<- event) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				e = event{Action: "build-output", Output: line}
			}
			e.command = command
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
	panicked                bool
}

// report counts and prints. One goroutine calls it.
type report struct {
	out                             io.Writer
	begin                           time.Time
	running                         map[string]*pkg
	packages                        int
	passed, failed, skipped, broken int
	leftOut                         map[string]int // tests by the program that is missing
	failures                        []failure
	blamed                          map[string]bool // commands of which something is known to have failed
	busy                            []string        // tests that failed beside others, and passed alone
}

// failure is a test that failed, or a package whose process died.
type failure struct{ pkg, test, command, why string }

// name returns the test without its subtests.
func (f failure) name() string {
	name, _, _ := strings.Cut(f.test, "/")
	return strings.TrimPrefix(f.pkg, "github.com/workwire/workwire/") + " " + name
}

// alone returns the command that runs the test only.
func (f failure) alone() string {
	var words []string
	for _, word := range strings.Fields(f.command) {
		switch {
		case !strings.HasPrefix(word, "./") && !strings.HasPrefix(word, "github.com/"):
			words = append(words, word)
		case !slices.Contains(words, f.pkg):
			words = append(words, f.pkg)
		}
	}
	test, _, _ := strings.Cut(f.test, "/")
	return strings.Join(words, " ") + " -count=1 -run '^" + test + "$'"
}

func newReport(out io.Writer, begin time.Time) *report {
	return &report{out: out, begin: begin, running: map[string]*pkg{}, leftOut: map[string]int{}, blamed: map[string]bool{}}
}

// follow prints events until there are no more.
func (r *report) follow(events <-chan event) {
	ticker := time.NewTicker(quiet)
	defer ticker.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return
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
		if !r.blamed[e.command] {
			r.broken++
		}
		fmt.Fprintf(r.out, "FAIL %s: %.120s\n", e.failed, e.command)
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
		p.panicked = p.panicked || died.MatchString(e.Output)
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
		r.fail(e, e.Test, t.output.String())
	case "pause", "cont":
		t.paused = e.Action == "pause"
		return false
	default:
		return false
	}
	delete(p.tests, e.Test)
	return e.Action == "fail"
}

// died matches what a process says that ends before its tests.
var died = regexp.MustCompile(`^(panic|fatal error): `)

// says matches the first line of what a test has said itself, and of a data race.
var says = regexp.MustCompile(`(?m)^ +\w+\.go:\d+: .*\n|^.*(?:DATA RACE|race detected).*\n|^panic: .*\n`)

// fail notes a failure, with the first lines of the output that say why.
func (r *report) fail(e event, test, output string) {
	r.blamed[e.command] = true
	r.failures = append(r.failures, failure{e.Package, test, e.command, strings.Join(says.FindAllString(output, 5), "")})
}

// mostAgain is how many failed tests run again: a busy machine explains no more.
const mostAgain = 5

// again returns the commands that run what failed once more, each test alone; none if that would not help.
func (r *report) again() (commands []string) {
	for _, f := range r.failures {
		if command := f.alone(); !slices.Contains(commands, command) {
			commands = append(commands, command)
		}
	}
	if r.broken > 0 || len(commands) > mostAgain {
		return nil
	}
	return commands
}

// settle takes what the second attempts showed for the result.
func (r *report) settle(second *report) {
	failed := func(name string) bool {
		return second.broken > 0 || slices.ContainsFunc(second.failures, func(f failure) bool { return f.name() == name })
	}
	for _, f := range r.failures {
		if name := f.name(); !failed(name) && !slices.Contains(r.busy, name) {
			r.busy = append(r.busy, name)
		}
	}
	r.failures = slices.DeleteFunc(r.failures, func(f failure) bool { return !failed(f.name()) })
	r.passed, r.failed, r.broken = r.passed+len(r.busy), len(r.failures), second.broken
}

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
	unended := len(p.tests) > 1 // besides the package itself
	if verdict == "FAIL" && (p.failed == 0 || p.panicked || unended) {
		// It did not build, or its process died: tests that had not begun ran nowhere.
		r.broken++
		r.blamed[e.command] = true
		for _, name := range slices.Sorted(maps.Keys(p.tests)) {
			output := p.tests[name].output.String()
			fmt.Fprint(r.out, output)
			r.fail(e, name, output)
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
	if len(r.busy) > 0 {
		line += "; failed beside others and passed alone: " + strings.Join(r.busy, ", ")
	}
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "FAIL %s %s\n%s", f.pkg, f.test, f.why)
	}
	fmt.Fprintf(r.out, "%d packages in %.0f s\n%s\n", r.packages, time.Since(r.begin).Seconds(), line)
	if r.failed+r.broken > 0 || r.passed == 0 {
		return 1
	}
	return 0
}
