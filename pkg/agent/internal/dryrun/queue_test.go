package dryrun

import (
	"fmt"
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
			if id := fmt.Sprintf("%s%d", source, i); !q.put(&wire.DryRun{Source: wire.SourceID(source), ID: id}) {
				told = append(told, id)
			}
		}
	}
	ends := map[wire.SourceID]func(){}
	take := func() string {
		if q.turns.Len() == 0 {
			return ""
		}
		got, done := q.next()
		ends[got.Source] = done
		return got.ID
	}
	put("a", 20)
	if len(told) != 20-maxWaiting || told[0] != fmt.Sprintf("a%d", maxWaiting) {
		t.Errorf("of 20 of one source %q have no place", told)
	}
	put("b", 2)
	if got := take() + take() + take(); got != "a0b0" {
		t.Errorf("at first are examined %q, want one of each source", got)
	}
	ends["a"]()
	ends["b"]()
	if got := take() + take() + take(); got != "a1b1" {
		t.Errorf("then are examined %q", got)
	}
	told = nil
	put("c", maxWaiting)
	put("a", maxWaiting) // of which 6 wait
	if len(told) != maxWaiting-2 {
		t.Errorf("%q have no place", told)
	}
	if got := take() + take(); got != "c0" { // a and b are being examined
		t.Errorf("then are examined %q", got)
	}
	for _, source := range []wire.SourceID{"a", "b", "c"} {
		ends[source]()
	}
	rest := 0
	for got := take(); got != ""; got = take() {
		rest++
		ends[wire.SourceID(got[:1])]()
	}
	if rest != maxWaiting+maxWaiting-1 || len(q.waiting) != 0 {
		t.Errorf("%d were left, then there are %d lists", rest, len(q.waiting))
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
