package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReport: what `go test -json` says becomes a line for each package, the output of what failed, and
// the last line.
func TestReport(t *testing.T) {
	const ran = `{"Action":"start","Package":"p/a"}
{"Action":"run","Package":"p/a","Test":"TestOne"}
{"Action":"output","Package":"p/a","Test":"TestOne","Output":"fine\n"}
{"Action":"pass","Package":"p/a","Test":"TestOne"}
{"Action":"run","Package":"p/a","Test":"TestTwo"}
{"Action":"output","Package":"p/a","Test":"TestTwo","Output":"    x_test.go:1: left out: needs mosquitto; more\n"}
{"Action":"skip","Package":"p/a","Test":"TestTwo"}
{"Action":"pass","Package":"p/a","Elapsed":1}
{"Action":"skip","Package":"p/none"}
`
	const failed = `{"Action":"run","Package":"p/b","Test":"TestBad"}
{"Action":"output","Package":"p/b","Test":"TestBad","Output":"    b_test.go:7: why\n"}
{"Action":"fail","Package":"p/b","Test":"TestBad","Elapsed":2}
{"Action":"fail","Package":"p/b","Elapsed":2}
`
	for _, c := range []struct {
		name, in string
		status   int
		shown    []string
		last     string
	}{
		{"passed", ran, 0, []string{"ok   p/a"}, "1 passed, 0 failed, 1 skipped; left out for want of a program: mosquitto (1)\n"},
		{"failed", ran + failed, 1, []string{"--- FAIL p/b TestBad (2.0s)\n    b_test.go:7: why\n", "FAIL p/b TestBad\n    b_test.go:7: why\n2 packages"}, "1 passed, 1 failed, 1 skipped; left out for want of a program: mosquitto (1)\n"},
		{"does not build", "x.go:1: no such thing\n" + `{"Action":"fail","Package":"p/c"}` + "\n", 1, []string{"no such thing"}, "0 passed, 1 failed\n"},
		{"its process dies", `{"Action":"run","Package":"p/d","Test":"TestPanics"}
{"Action":"output","Package":"p/d","Test":"TestPanics","Output":"panic: no\n"}
{"Action":"fail","Package":"p/d"}
`, 1, []string{"panic: no"}, "0 passed, 1 failed\n"},
		{"nothing", "", 1, nil, "0 passed, 0 failed\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := make(chan event)
			go func() {
				scan(strings.NewReader(c.in), "go test", events)
				close(events)
			}()
			var out strings.Builder
			r := newReport(&out, time.Now())
			r.follow(events)
			status := r.end()
			if status != c.status || !strings.HasSuffix(out.String(), "\n"+c.last) {
				t.Errorf("status %d, want %d; last line %q\n%s", status, c.status, c.last, &out)
			}
			for _, text := range c.shown {
				if !strings.Contains(out.String(), text) {
					t.Errorf("no %q in\n%s", text, &out)
				}
			}
		})
	}
}

// TestSplit: phases are one after the other, and lanes side by side.
func TestSplit(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a b", "[[a b]]"},
		{"a beside b c", "[[a] [b c]]"},
		{"", "[[]]"},
	} {
		if got := fmt.Sprint(split(strings.Fields(c.in), "beside")); got != c.want {
			t.Errorf("%q is split into %s, want %s", c.in, got, c.want)
		}
	}
}

// TestSecondAttempt: few tests that fail run again, alone, and the last line names those that pass then.
func TestSecondAttempt(t *testing.T) {
	fed := func(lines string) (*report, *strings.Builder) {
		var out strings.Builder
		r, events := newReport(&out, time.Now()), make(chan event)
		go func() {
			scan(strings.NewReader(lines), "go test -json -exec 'env A=1' ./p/a ./p/b -soak 1m", events)
			events <- event{command: "go test -json -exec 'env A=1' ./p/a ./p/b -soak 1m", failed: "exit status 1"}
			close(events)
		}()
		r.follow(events)
		return r, &out
	}
	failing := func(test string) string {
		return fmt.Sprintf(`{"Action":"run","Package":"p/a","Test":%[1]q}
{"Action":"fail","Package":"p/a","Test":%[1]q}
`, test)
	}
	const ended = `{"Action":"fail","Package":"p/a"}` + "\n"
	r, out := fed(failing("TestBad/one") + failing("TestBad") + failing("TestWorse") + ended)
	want := []string{"go test -json -exec 'env A=1' p/a -soak 1m -count=1 -run '^TestBad$'", "go test -json -exec 'env A=1' p/a -soak 1m -count=1 -run '^TestWorse$'"}
	if got := r.again(); !slices.Equal(got, want) {
		t.Errorf("again are %q, want %q", got, want)
	}
	second, _ := fed(failing("TestWorse") + ended)
	r.settle(second)
	if status := r.end(); status != 1 || !strings.HasSuffix(out.String(), "FAIL p/a TestWorse\n1 packages in 0 s\n1 passed, 1 failed; failed beside others and passed alone: p/a TestBad\n") {
		t.Errorf("status %d\n%s", status, out)
	}
	many := ""
	for i := range mostAgain + 1 {
		many += failing(fmt.Sprint("Test", i))
	}
	if r, _ := fed(many + ended); len(r.again()) != 0 {
		t.Error("more tests run again than a busy machine explains")
	}
	if r, _ := fed(`{"Action":"run","Package":"p/a","Test":"TestPanics"}` + "\n" + ended); len(r.again()) != 0 {
		t.Error("a package whose process died runs again")
	}
	const panics = `{"Action":"output","Package":"p/a","Test":"TestPanics","Output":"panic: no\n"}` + "\n" + `{"Action":"fail","Package":"p/a","Test":"TestPanics"}` + "\n"
	if r, _ := fed(panics + ended); len(r.again()) != 0 {
		t.Error("a package in which a test panicked runs again, without the tests that had not begun")
	}
	const failed = `{"Action":"fail","Package":"p/a","Test":"TestFails"}` + "\n" + `{"Action":"run","Package":"p/a","Test":"TestNotEnded"}` + "\n"
	if r, _ := fed(failed + ended); len(r.again()) != 0 {
		t.Error("a package of which a test has not ended runs again, without the tests that had not begun")
	}
}
