package sim

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// tale is a story with something of each kind.
func tale(t *testing.T) []step {
	w, violations := small(t)
	if len(violations) > 0 {
		t.Fatal(violations)
	}
	w.trace.entries = append(w.trace.entries, entry{at: time.Date(2026, 1, 1, 0, 9, 0, 0, time.UTC), actor: check, what: `ConfigMap work1-0 of cluster1 is "</script>"`})
	return w.trace.story()
}

func TestStory(t *testing.T) {
	kinds := map[string]int{}
	var all strings.Builder
	for _, s := range tale(t) {
		kinds[s.Kind]++
		fmt.Fprintln(&all, &s)
	}
	for _, kind := range []string{messageStep, writeStep, changeStep, faultStep, logStep, wrongStep} {
		if kinds[kind] == 0 {
			t.Errorf("no step is a %s", kind)
		}
	}
	for _, sentence := range []string{
		`somebody creates work cluster1/work\d, generation 1: work\d-0 = \d`, `the hub publishes generation \d of work cluster1/work\d: work\d-0 = \d`,
		`the agent of cluster1 receives generation \d of work cluster1/work\d: work\d-0 = \d`,
		`the agent of cluster1 creates ConfigMap work\d-0 = \d: generation \d of work cluster1/work\d`,
		`the hub receives the status of work cluster1/work\d, for generation \d: Applied, Available`,
	} {
		if !regexp.MustCompile(sentence).MatchString(all.String()) {
			t.Errorf("the story has no sentence %q:\n%s", sentence, all.String())
		}
	}
	if strings.Contains(all.String(), "that cannot be read: ") {
		t.Errorf("a message is not understood:\n%s", all.String())
	}
}

// The first wrong state is told with its time, and after what had happened to its work.
func TestFirstWrong(t *testing.T) {
	steps := tale(t)
	steps[len(steps)-1].Works = steps[slices.IndexFunc(steps, func(s step) bool { return strings.HasPrefix(s.Text, "somebody creates work") })].Works
	end := firstWrong(steps)
	if len(end) < 5 || end[0] != `The first wrong state, at 00:09:00.000: ConfigMap work1-0 of cluster1 is "</script>"` {
		t.Fatalf("the story ends with %q", end)
	}
	name := steps[len(steps)-1].Works[0]
	about := map[string]bool{}
	for _, s := range steps {
		about["  "+s.String()] = len(s.Works) == 0 || slices.Contains(s.Works, name)
	}
	for _, line := range end[3:] {
		if !about[line] {
			t.Errorf("not about work %s: %s", name, line)
		}
	}
	if got := firstWrong(nil); got != nil {
		t.Errorf("nothing is wrong, and the story ends with %q", got)
	}
}

// The page is well formed, needs nothing from elsewhere, and contains all steps, whose lanes it has.
func TestLanes(t *testing.T) {
	steps := tale(t)
	var page bytes.Buffer
	kit.NoError(t, writeLanes(&page, "Seed 3 & more", steps))
	before, rest, _ := strings.Cut(page.String(), "<script>")
	script, after, found := strings.Cut(rest, "</script>")
	if !found {
		t.Fatal("the page has no script")
	}
	for d := xml.NewDecoder(strings.NewReader(before + after)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, outside := range []string{"src=", "href=", "url(", "@import", "fetch("} {
		if strings.Contains(page.String(), outside) {
			t.Errorf("the page has %s", outside)
		}
	}
	var lanes []string
	_, text, _ := strings.Cut(script, "const lanes = ")
	kit.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&lanes))
	var shown []step
	_, text, _ = strings.Cut(script, "steps = ")
	kit.NoError(t, json.NewDecoder(strings.NewReader(text)).Decode(&shown))
	if len(shown) != len(steps) {
		t.Fatalf("the page has %d steps, want %d", len(shown), len(steps))
	}
	for i, s := range steps {
		if shown[i].String() != s.String() {
			t.Errorf("step %d is %q, want %q", i, &shown[i], &s)
		}
		for _, lane := range []string{s.From, s.To} {
			if lane != "" && lane != check && !strings.Contains("\n"+strings.Join(lanes, "\n")+"\n", "\n"+lane+"\n") {
				t.Errorf("there is no lane %q: %s", lane, &s)
			}
		}
	}
}
