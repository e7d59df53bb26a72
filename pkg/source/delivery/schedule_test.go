package delivery

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestSchedule compares a schedule with a map that is searched each time.
func TestSchedule(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(0, 0)
	var s schedule[*workRecord]
	works := make([]workRecord, 50)
	plain := make(map[*workRecord]time.Time)
	for range 20_000 {
		key := &works[random.IntN(len(works))]
		switch random.IntN(4) {
		case 0, 1:
			at := start.Add(time.Duration(random.IntN(1000)))
			s.set(key, at)
			plain[key] = at
		case 2:
			s.remove(key)
			delete(plain, key)
		case 3:
			now := start.Add(time.Duration(random.IntN(1000)))
			popped, ok := s.pop(now)
			want, scheduled := earliest(plain)
			if wantOK := scheduled && !want.After(now); ok != wantOK {
				t.Fatalf("pop(%v) gave %v, want %v", now, ok, wantOK)
			}
			if ok && !plain[popped].Equal(want) {
				t.Fatalf("pop gave the key due at %v, the earliest is due at %v", plain[popped], want)
			}
			if ok {
				delete(plain, popped)
			}
		}
		at := s.next()
		if want, _ := earliest(plain); !at.Equal(want) {
			t.Fatalf("next gave %v, want %v", at, want)
		}
	}
}

func earliest(plain map[*workRecord]time.Time) (time.Time, bool) {
	var found time.Time
	for _, at := range plain {
		if found.IsZero() || at.Before(found) {
			found = at
		}
	}
	return found, len(plain) > 0
}

func TestBackoff(t *testing.T) {
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{0, time.Second}, {1, 2 * time.Second}, {4, 16 * time.Second}, {5, 30 * time.Second}, {1 << 30, 30 * time.Second}} {
		if got := backoff(time.Second, c.n, 30*time.Second); got != c.want {
			t.Errorf("backoff after %d: %s, want %s", c.n, got, c.want)
		}
	}
}
