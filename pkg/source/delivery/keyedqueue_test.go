package delivery

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/test/kit"
)

// TestKeyedQueue: calls are serialized per key, values added meanwhile are merged, a failed call is
// retried after a backoff with the merged value, and other keys are not delayed.
func TestKeyedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		calls := make(map[string][]int)
		retry := make(chan bool)
		q := newKeyedQueue(func(key string) string { return key }, func(older, newer int) int { return older + newer }, func(ctx context.Context, key string, value int) bool {
			mu.Lock()
			calls[key] = append(calls[key], value)
			mu.Unlock()
			if key == "slow" {
				return <-retry
			}
			return false
		})
		var running sync.WaitGroup
		running.Go(func() { q.run(ctx, 2) })
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
		q.add("slow", 1)
		seen("slow", 1)
		q.add("slow", 10)
		q.add("slow", 100)
		q.add("fast", 5)
		seen("fast", 5)
		seen("slow", 1)
		retry <- true
		seen("slow", 1) // in backoff
		time.Sleep(minRetryDelay)
		seen("slow", 1, 111)
		retry <- false
		synctest.Wait()
		if n := q.len(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		cancel()
		running.Wait()
	})
}

// TestKeyedQueueConcurrentAdds checks that no value is lost or processed twice when values are
// added while a worker takes the key.
func TestKeyedQueueConcurrentAdds(t *testing.T) {
	const adders, adds = 8, 5000
	var mu sync.Mutex
	sum := 0
	q := newKeyedQueue(func(key string) string { return key }, func(older, newer int) int { return older + newer }, func(_ context.Context, _ string, value int) bool {
		mu.Lock()
		defer mu.Unlock()
		sum += value
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running, adding sync.WaitGroup
	running.Go(func() { q.run(ctx, 4) })
	for range adders {
		adding.Go(func() {
			for range adds {
				q.add("key", 1)
			}
		})
	}
	adding.Wait()
	kit.True(t, "all values are processed", func() bool { return q.len() == 0 })
	cancel()
	running.Wait()
	if sum != adders*adds {
		t.Errorf("the values processed sum up to %d, want %d", sum, adders*adds)
	}
}

// TestKeyedQueueClear: a value that was cleared does not come back after its backoff.
func TestKeyedQueueClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var calls []int
		q := newKeyedQueue(func(key string) string { return key }, func(older, newer int) int { return older + newer }, func(_ context.Context, _ string, value int) bool {
			calls = append(calls, value)
			return value > 0
		})
		var running sync.WaitGroup
		running.Go(func() { q.run(ctx, 1) })
		q.add("lost", 1)
		synctest.Wait()
		q.clear(func(key string) bool { return key == "lost" })
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(calls) != 2 || calls[1] != 0 || q.len() != 0 {
			t.Errorf("calls %v, %d keys are left", calls, q.len())
		}
		cancel()
		running.Wait()
	})
}
