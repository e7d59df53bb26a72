package memory

import (
	"testing"
	"time"
)

// TestRest: memory is returned after the start and after much was done, each time once the program is at rest, and every two
// minutes at rest; never while it is busy.
func TestRest(t *testing.T) {
	const mega = 1 << 20
	now, allocated := time.Now(), uint64(0)
	r := rest{since: now}
	for i, step := range []struct {
		looks      int
		bytes      uint64 // allocated between two of them
		held, want int
	}{
		{looks: 1, bytes: 20 * mega},            // the start
		{looks: 30, bytes: mega / 10, want: 1},  // after it, and 3 MB are not worth another one
		{looks: 12, bytes: mega / 10, want: 1},  // but 4 are
		{looks: 300, bytes: 2 * mega},           // busy, for ten minutes
		{looks: 1, bytes: 0, want: 1},           // at rest
		{looks: 300, bytes: 0, want: 5},         // every two minutes
		{looks: 1, bytes: 20 * mega, held: 100}, // little, for a large heap
		{looks: 5, held: 100},
		{looks: 1, bytes: 10 * mega, held: 100},
		{looks: 5, held: 100, want: 1},
	} {
		returns := 0
		for range step.looks {
			now = now.Add(lookEvery)
			allocated += step.bytes
			if r.look(now, allocated, uint64(step.held*mega)) {
				returns++
			}
		}
		if returns != step.want {
			t.Errorf("step %d: returned %d times, want %d", i, returns, step.want)
		}
	}
}
