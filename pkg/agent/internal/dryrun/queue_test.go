package dryrun

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/wire"
)

// TestQueueIsFair: sources take turns, none is examined twice at a time, none has all places, and what has no
// place is told.
func TestQueueIsFair(t *testing.T) {
	q := newQueue()
	var told []string
	put := func(source string, n int) {
		for i := range n {
			if without, full := q.put(task{question: &wire.DryRun{Source: wire.SourceID(source), ID: fmt.Sprintf("%s%d", source, i)}}); full {
				told = append(told, without.question.ID)
			}
		}
	}
	take := func() string {
		got, ok := q.pop()
		if !ok {
			return ""
		}
		return got.question.ID
	}
	put("a", 20)
	if len(told) != 20-maxWaiting || told[0] != fmt.Sprintf("a%d", maxWaiting) {
		t.Errorf("of 20 of one source %q have no place", told)
	}
	put("b", 2)
	if got := take() + take() + take(); got != "a0b0" {
		t.Errorf("at first are examined %q, want one of each source", got)
	}
	q.done("a")
	q.done("b")
	if got := take() + take() + take(); got != "a1b1" {
		t.Errorf("then are examined %q", got)
	}
	put("c", maxWaiting)
	put("d", maxWaiting)
	put("e", maxWaiting) // a has 6, b none, c and d have 8: 30 with those of e
	told = nil
	put("f", 4)
	if len(told) != 2 || slices.ContainsFunc(told, func(id string) bool { return strings.HasPrefix(id, "f") || strings.HasPrefix(id, "a") }) {
		t.Errorf("%q make place for a source that has none waiting, want two of those that have most", told)
	}
	if q.size != maxAllWaiting {
		t.Errorf("%d wait", q.size)
	}
	seen := map[wire.SourceID]bool{}
	for {
		got, ok := q.pop()
		if !ok {
			break
		}
		if seen[got.question.Source] {
			t.Errorf("two of %s are examined at a time", got.question.Source)
		}
		seen[got.question.Source] = true
	}
	if len(seen) != 4 { // a and b are being examined
		t.Errorf("examined are %v", seen)
	}
	for _, source := range []wire.SourceID{"a", "b", "c", "d", "e", "f"} {
		q.done(source)
	}
	rest := 0
	for {
		got, ok := q.pop()
		if !ok {
			break
		}
		rest++
		q.done(got.question.Source)
	}
	if rest != maxAllWaiting-4 || q.size != 0 || len(q.waiting) != 0 || len(q.running) != 0 {
		t.Errorf("%d were left, then %d wait in %d lists, and %d are being examined", rest, q.size, len(q.waiting), len(q.running))
	}
}

// TestHiddenValues: the answer to a sealed question has no values.
func TestHiddenValues(t *testing.T) {
	objects := []wire.DryRunObject{
		{Result: wire.DryRunChanged, Warnings: []string{"hunter2"}, Fields: []wire.DryRunField{{Path: "data.k", From: `"hunter2"`, To: `"hunter3"`}, {Path: "data.n", To: `"hunter4"`}}},
		{Result: wire.DryRunRefused, Message: "hunter5 denied the request"},
	}
	hideValues(objects)
	if text := fmt.Sprint(objects); strings.Contains(text, "hunter") || objects[0].Fields[1].From != "" || objects[0].Fields[1].To != hidden {
		t.Errorf("%s", text)
	}
}
