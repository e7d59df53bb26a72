package controller

import (
	"sync"
	"time"
)

// How decisions about many objects are spaced out.
const (
	// paceAll is how many times their cost the decisions of all keys take together, and paceOne of one key at
	// most: a key with cheap decisions is not delayed by those of others.
	paceAll, paceOne = 4, 100
	// maxPause is the longest pause of a key, and how far ahead the decisions of all keys are spaced out.
	maxPause = 10 * time.Second
)

// throttle spaces out the reconciles of a key.
type throttle[K comparable] struct {
	interval time.Duration

	mu       sync.Mutex
	earliest map[K]time.Time // guarded by mu: when the next reconcile may start; of those that started last
	order    []K             // guarded by mu: the keys of earliest, in the order in which they started
	free     time.Time       // guarded by mu: when all decisions up to now have been paid for
}

// remaining returns the time until a reconcile of key may start.
func (t *throttle[K]) remaining(key K, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(0, t.earliest[key].Sub(now))
}

// start notes that a reconcile of key starts, and returns 0; or, if it may not start yet, the time
// until then.
func (t *throttle[K]) start(key K, now time.Time) time.Duration {
	if t.interval == 0 {
		return 0
	}
	if remaining := t.remaining(key, now); remaining > 0 {
		return remaining
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.order) > 0 && !t.earliest[t.order[0]].After(now) {
		delete(t.earliest, t.order[0])
		t.order = t.order[1:]
	}
	t.earliest[key] = now.Add(t.interval)
	t.order = append(t.order, key)
	return 0
}

// spent notes what a decision in a reconcile of key, which has started, has cost.
func (t *throttle[K]) spent(key K, cost time.Duration, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free.Before(now) {
		t.free = now
	}
	t.free = t.free.Add(min(paceAll*cost, maxPause-t.free.Sub(now)))
	next, known := t.earliest[key]
	if !known { // the interval has passed meanwhile
		t.order = append(t.order, key)
	}
	if paced := now.Add(min(t.free.Sub(now), paceOne*cost)); paced.After(next) {
		next = paced
	}
	t.earliest[key] = next
}
