package schedule_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/workwire/workwire/pkg/runtime/schedule"
)

// TestSchedule compares a schedule with a map that is searched each time.
func TestSchedule(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	start := time.Unix(0, 0)
	type thing struct{ schedule.Timer }
	var s schedule.Schedule[*thing]
	things := make([]thing, 50)
	plain := make(map[*thing]time.Time)
	for range 20_000 {
		key := &things[random.IntN(len(things))]
		switch random.IntN(4) {
		case 0, 1:
			at := start.Add(time.Duration(random.IntN(1000)))
			s.Set(key, at)
			plain[key] = at
		case 2:
			s.Remove(key)
			delete(plain, key)
		case 3:
			now := start.Add(time.Duration(random.IntN(1000)))
			popped, ok := s.Pop(now)
			want, scheduled := earliest(plain)
			if wantOK := scheduled && !want.After(now); ok != wantOK {
				t.Fatalf("Pop(%v) gave %v, want %v", now, ok, wantOK)
			}
			if ok && !plain[popped].Equal(want) {
				t.Fatalf("Pop gave the key due at %v, the earliest is due at %v", plain[popped], want)
			}
			if ok {
				delete(plain, popped)
			}
		}
		at := s.Next()
		if want, _ := earliest(plain); !at.Equal(want) {
			t.Fatalf("Next gave %v, want %v", at, want)
		}
	}
}

func earliest[K comparable](plain map[K]time.Time) (time.Time, bool) {
	var found time.Time
	for _, at := range plain {
		if found.IsZero() || at.Before(found) {
			found = at
		}
	}
	return found, len(plain) > 0
}
