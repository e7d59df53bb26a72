package delivery

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestLane: one call per key at a time, values that come meanwhile merge, a failed
// one is tried again with what has come since, and other keys go on.
func TestLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		calls := make(map[string][]int)
		release := make(chan error)
		l := newKeyedQueue(func(older, newer int) int { return older + newer }, func(ctx context.Context, key string, value int) error {
			mu.Lock()
			calls[key] = append(calls[key], value)
			mu.Unlock()
			if key == "slow" {
				return <-release
			}
			return nil
		})
		var running sync.WaitGroup
		running.Go(func() { runWorkers(ctx, 2, l.wake, l) })
		seen := func(key string, want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(calls[key]) != len(want) {
				t.Fatalf("calls for %s: %v, want %v", key, calls[key], want)
			}
			for i := range want {
				if calls[key][i] != want[i] {
					t.Fatalf("calls for %s: %v, want %v", key, calls[key], want)
				}
			}
		}
		l.add("slow", 1)
		seen("slow", 1)
		l.add("slow", 10)
		l.add("slow", 100)
		l.add("fast", 5)
		seen("fast", 5)
		seen("slow", 1)
		release <- errors.New("fails")
		seen("slow", 1) // waits for its retry
		time.Sleep(retryMin)
		seen("slow", 1, 111)
		release <- nil
		synctest.Wait()
		if n := l.len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		cancel()
		running.Wait()
	})
}
