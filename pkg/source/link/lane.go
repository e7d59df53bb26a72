package link

import (
	"context"
	"sync"
	"time"
)

// Pauses between the tries of a lane.
const (
	laneRetry    = 100 * time.Millisecond
	laneRetryMax = 30 * time.Second
)

// lane does something with the newest value of each key: one key at a time once,
// several keys at once, values that come meanwhile merged, and again after a pause
// when it failed. It is safe for concurrent use.
type lane[K comparable, V any] struct {
	// merge makes one value of an older and a newer one.
	merge func(older, newer V) V
	do    func(context.Context, K, V) error
	wake  chan struct{} // room for one

	mu      sync.Mutex
	pending map[K]*laneItem[V] // guarded by mu
	ready   fifo[K]            // guarded by mu
	retries schedule[K]        // guarded by mu
}

// laneItem is the state of one key, which is at any time exactly one of: ready,
// running, or waiting for its retry.
type laneItem[V any] struct {
	value    V
	has      bool // value is to be done
	failures int
}

func newLane[K comparable, V any](merge func(older, newer V) V, do func(context.Context, K, V) error) *lane[K, V] {
	return &lane[K, V]{merge: merge, do: do, wake: make(chan struct{}, 1), pending: make(map[K]*laneItem[V])}
}

// put hands value in. It never waits.
func (l *lane[K, V]) put(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	item, ok := l.pending[key]
	switch {
	case !ok:
		l.pending[key] = &laneItem[V]{value: value, has: true}
		l.ready.push(key)
		signal(l.wake)
	case item.has:
		item.value = l.merge(item.value, value)
	default:
		item.value, item.has = value, true
	}
}

// len is the number of keys that wait or run.
func (l *lane[K, V]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

func (l *lane[K, V]) next(now time.Time) (func(context.Context), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		key, ok := l.retries.pop(now)
		if !ok {
			break
		}
		l.ready.push(key)
	}
	key, ok := l.ready.pop()
	if !ok {
		return nil, false
	}
	item := l.pending[key]
	value := item.value
	var none V
	item.value, item.has = none, false
	return func(ctx context.Context) { l.done(key, value, l.do(ctx, key, value)) }, true
}

func (l *lane[K, V]) done(key K, value V, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.pending[key]
	if err != nil {
		if item.has {
			value = l.merge(value, item.value)
		}
		item.value, item.has = value, true
		l.retries.set(key, time.Now().Add(backoff(laneRetry, item.failures, laneRetryMax)))
		item.failures++
		return
	}
	item.failures = 0
	if !item.has {
		delete(l.pending, key)
		return
	}
	l.ready.push(key)
}

func (l *lane[K, V]) wakeAt() (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retries.next()
}

// backoff is first doubled n times, at most limit.
func backoff(first time.Duration, n int, limit time.Duration) time.Duration {
	for ; n > 0 && first < limit; n-- {
		first *= 2
	}
	return min(first, limit)
}
