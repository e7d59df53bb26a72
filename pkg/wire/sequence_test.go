package wire_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

// Parts of an id, by the layout of docs/protocol.md.
func parts(id wire.SequenceID) (at time.Time, node, step int64) {
	return time.UnixMilli(int64(id)>>22 + 1288834974657), int64(id) >> 12 & 1023, int64(id) & 4095
}

func TestSequenceLayout(t *testing.T) {
	now := time.UnixMilli(1900000000123)
	var s wire.Sequence
	for step := range int64(3) {
		at, node, got := parts(s.Next(now))
		if !at.Equal(now) || node != 1 || got != step {
			t.Errorf("id %d is of %v, node %d, step %d; want %v, 1, %d", step, at, node, got, now, step)
		}
	}
	if at, _, step := parts(s.Next(now.Add(time.Millisecond))); !at.Equal(now.Add(time.Millisecond)) || step != 0 {
		t.Errorf("the next millisecond begins at step %d of %v", step, at)
	}
}

// TestSequenceOfNoClock: a clock that cannot be right neither turns ids negative nor uses them up.
func TestSequenceOfNoClock(t *testing.T) {
	now := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	for name, wrong := range map[string]time.Time{
		"1970": time.UnixMilli(0), "year 1": {}, "2063": time.Date(2063, 6, 1, 0, 0, 0, 0, time.UTC),
		"2081": time.Date(2081, 1, 1, 0, 0, 0, 0, time.UTC), "2200": time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
		"9999": time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			var s wire.Sequence
			first := s.Next(wrong)
			if first <= 0 || s.Next(wrong) <= first {
				t.Errorf("the first id is %d, and the next is not greater", first)
			}
			right := s.Next(now)
			if at, _, _ := parts(right); right <= first || !at.Equal(now) {
				t.Errorf("with the right clock the id is %d of %v, after %d", right, at, first)
			}
			if again := s.Next(wrong); again <= right || again > right+4096 {
				t.Errorf("the wrong clock goes on with %d after %d", again, right)
			}
		})
	}
}

// TestSequenceIncreases runs it on a clock that stands, jumps and goes back to before the epoch,
// and holds more ids than a millisecond has.
func TestSequenceIncreases(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var s wire.Sequence
	var last wire.SequenceID
	next := func(now time.Time) {
		t.Helper()
		id := s.Next(now)
		if id <= last {
			t.Fatalf("at %v the id is %d, after %d", now, id, last)
		}
		if _, node, _ := parts(id); node != 1 {
			t.Fatalf("id %d is of node %d", id, node)
		}
		last = id
	}
	now := time.UnixMilli(1900000000000)
	for range 3 * 4096 {
		next(now)
	}
	for range 20000 {
		switch random.IntN(50) {
		case 0:
			now = now.Add(-time.Duration(random.Int64N(int64(time.Hour))))
		case 1:
			now = now.Add(time.Duration(random.Int64N(int64(time.Hour))))
		case 2:
			now = time.UnixMilli(random.Int64N(1 << 41))
		default:
			now = now.Add(time.Duration(random.Int64N(int64(time.Millisecond))))
		}
		next(now)
	}
}

func TestSequenceResumes(t *testing.T) {
	now := time.UnixMilli(1900000000000)
	var before wire.Sequence
	var last wire.SequenceID
	for range 5000 {
		last = before.Next(now)
	}
	for name, clock := range map[string]time.Time{
		"clock is on": now.Add(time.Hour), "clock stands": now, "clock is back": now.Add(-time.Hour), "clock is lost": time.UnixMilli(0),
	} {
		var after wire.Sequence
		after.Resume(last)
		if id := after.Next(clock); id <= last {
			t.Errorf("%s: the first id is %d, after %d", name, id, last)
		}
	}
	var fresh, none wire.Sequence
	none.Resume(0)
	if a, b := fresh.Next(now), none.Next(now); a != b {
		t.Errorf("Resume(0) changes the first id from %d to %d", a, b)
	}
	var ahead wire.Sequence
	high := ahead.Next(now)
	ahead.Resume(1)
	if id := ahead.Next(now); id <= high {
		t.Errorf("Resume of an old id goes back from %d to %d", high, id)
	}
}

func TestParseSequenceID(t *testing.T) {
	if id, err := wire.ParseSequenceID("2690781301568442368"); err != nil || id != 2690781301568442368 || id.String() != "2690781301568442368" {
		t.Errorf("ParseSequenceID = %v, %v", id, err)
	}
	for _, text := range []string{"", "0", "-1", "1.5", "x", "9223372036854775808", " 1"} {
		if id, err := wire.ParseSequenceID(text); err == nil {
			t.Errorf("ParseSequenceID(%q) = %v, want an error", text, id)
		}
	}
}
