package works

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A hub that is behind with the answers of agents writes fewer conditions of its own, and never none.
func TestWritesPerSecond(t *testing.T) {
	for statusesPending, want := range map[int]int{0: 50, behindStatuses: 50, behindStatuses + 1: 5, 100_000: 5} {
		synctest.Test(t, func(t *testing.T) {
			l := newWriteLimiter()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			writes := 0
			for l.wait(ctx, statusesPending) == nil {
				writes++
			}
			if writes < 10*want || writes > 11*want+1 { // and as many at once in the beginning
				t.Errorf("%d writes in 10 s with %d statuses pending, want %d a second", writes, statusesPending, want)
			}
		})
	}
}
