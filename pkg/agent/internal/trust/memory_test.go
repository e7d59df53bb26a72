package trust

import (
	"fmt"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/security/signing"
)

var start = time.Unix(1_790_000_000, 0)

// at returns a time in seconds after start.
func at(seconds int) int64 { return after(seconds).UnixMicro() }

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// heard is an event and what is decided about it.
type heard struct {
	signed int // seconds after start
	now    int
	about  []string
	want   signing.Reason
}

func TestDecide(t *testing.T) {
	const minute = 60
	l := limits{maxAge: time.Hour, subjects: 100}
	a, b := []string{"uid/a", "name/web"}, []string{"uid/b", "name/web"}
	deleteA, deleteB, other := a[:1], b[:1], []string{"uid/c", "name/c"}
	for name, events := range map[string][]heard{
		"the same event twice":                          {{1, 1, a, ""}, {1, 2, a, signing.Replayed}},
		"an older event":                                {{2, 2, a, ""}, {1, 2, a, signing.Replayed}},
		"events of two works in any order":              {{2, 2, a, ""}, {1, 2, other, ""}},
		"a creation after the deletion":                 {{1, 1, a, ""}, {2, 2, deleteA, ""}, {1, 3, a, signing.Replayed}},
		"a creation, never seen, after the deletion":    {{2, 2, deleteA, ""}, {1, 3, a, signing.Replayed}},
		"a new creation after the deletion":             {{2, 2, deleteA, ""}, {3, 3, a, ""}},
		"the former work of a name":                     {{1, 1, a, ""}, {3, 3, b, ""}, {2, 4, a, signing.Replayed}, {1, 4, a, signing.Replayed}},
		"the deletion of the former work of a name":     {{1, 1, a, ""}, {3, 3, b, ""}, {2, 4, deleteA, ""}},
		"a deletion says nothing about a name":          {{3, 3, deleteB, ""}, {2, 4, a, ""}},
		"before the question was answered":              {{-1, 1, a, signing.Replayed}, {0, 1, a, signing.Replayed}},
		"older than events are valid":                   {{minute, 70 * minute, a, signing.Expired}},
		"ahead of the clock":                            {{70 * minute, minute, a, signing.Future}},
		"older than the newest event by more than that": {{30 * minute, 31 * minute, a, ""}, {85 * minute, 85 * minute, other, ""}, {20 * minute, 75 * minute, deleteB, signing.Replayed}},
	} {
		m := &memory{}
		m.prove(at(0))
		for i, e := range events {
			got := m.decide(e.about, at(e.signed), l, after(e.now))
			if got != e.want {
				t.Errorf("%s: event %d: %q, want %q", name, i, got, e.want)
			}
			if got == "" {
				m.note(e.about, at(e.signed), l)
			}
		}
	}
}

func TestUnproven(t *testing.T) {
	l := limits{subjects: 100}
	m := &memory{}
	if got := m.decide([]string{"uid/a"}, at(60), l, start); got != Unproven {
		t.Errorf("%q before the source has answered", got)
	}
	m.prove(at(2))
	m.prove(at(5)) // the answer to a later question says nothing new
	for signed, want := range map[int]signing.Reason{1: signing.Replayed, 2: signing.Replayed, 3: ""} {
		if got := m.decide([]string{"uid/a"}, at(signed), l, start); got != want {
			t.Errorf("signed at %d: %q, want %q", signed, got, want)
		}
	}
}

// TestUnlimited: without a limit of age, an older event about something else is new.
func TestUnlimited(t *testing.T) {
	l := limits{subjects: 2}
	m := &memory{}
	m.prove(at(0))
	m.note([]string{"uid/a", "name/a"}, at(60), l) // as many subjects as may be: none is forgotten
	if got := m.decide([]string{"uid/b"}, at(30), l, after(60)); got != "" {
		t.Errorf("%q", got)
	}
}

// TestMemoryIsBounded: whatever is forgotten, nothing becomes new by it.
func TestMemoryIsBounded(t *testing.T) {
	l := limits{maxAge: time.Hour, subjects: 10}
	m := &memory{}
	m.prove(at(0))
	for i := range 1000 {
		subject, signed := []string{fmt.Sprintf("uid/%d", i%37)}, at(i+1)
		now := after(i + 1)
		if got := m.decide(subject, signed, l, now); got != "" {
			t.Fatalf("event %d: %q", i, got)
		}
		m.note(subject, signed, l)
		if len(m.seen) > l.subjects || len(m.order) > l.subjects {
			t.Fatalf("event %d: %d subjects and %d records", i, len(m.seen), len(m.order))
		}
		for back := range min(i, 100) {
			old := i - back
			if got := m.decide([]string{fmt.Sprintf("uid/%d", old%37)}, at(old+1), l, now); got != signing.Replayed {
				t.Fatalf("event %d is new again after %d: %q", old, i, got)
			}
		}
	}
}

// FuzzMemory compares with a memory that forgets nothing: what that refuses is refused.
func FuzzMemory(f *testing.F) {
	f.Add([]byte{1, 1, 2, 2, 1, 1, 3, 9})
	f.Fuzz(func(t *testing.T, events []byte) {
		l := limits{subjects: 3}
		m, all := &memory{}, map[string]int64{}
		m.prove(1)
		for i := 0; i+1 < len(events); i += 2 {
			subject, signed := fmt.Sprint(events[i]%8), int64(events[i+1])
			if m.decide([]string{subject}, signed, l, start) != "" {
				continue
			}
			if signed <= all[subject] || signed <= 1 {
				t.Fatalf("%v: event %d of %s at %d is new, after %d", events, i/2, subject, signed, all[subject])
			}
			m.note([]string{subject}, signed, l)
			all[subject] = signed
		}
	})
}
