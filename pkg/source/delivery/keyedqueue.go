package delivery

import (
	"context"
	"sync"
	"time"
)

// Pauses between the tries of a lane.
const (
	retryMin = 100 * time.Millisecond
	retryMax = 30 * time.Second
)

// lane does something with the newest value of each key: one key at a time once,
// several keys at once, values that come meanwhile merged, and again after a pause
// when it failed. It is safe for concurrent use.
type keyedQueue[K comparable, V any] struct {
	// merge makes one value of an older and a newer one.
	merge func(older, newer V) V
	do    func(context.Context, K, V) error
	wake  chan struct{} // room for one

	mu      sync.Mutex
	pending map[K]*queueItem[V] // guarded by mu
	ready   fifo[K]             // guarded by mu
	retries schedule[K]         // guarded by mu
}

// laneItem is the state of one key, which is at any time exactly one of: ready,
// running, or waiting for its retry.
type queueItem[V any] struct {
	value    V
	has      bool // value is to be done
	failures int
}

func newKeyedQueue[K comparable, V any](merge func(older, newer V) V, do func(context.Context, K, V) error) *keyedQueue[K, V] {
	return &keyedQueue[K, V]{merge: merge, do: do, wake: make(chan struct{}, 1), pending: make(map[K]*queueItem[V])}
}

// put hands value in. It never waits.
func (l *keyedQueue[K, V]) add(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	item, ok := l.pending[key]
	switch {
	case !ok:
		l.pending[key] = &queueItem[V]{value: value, has: true}
		l.ready.push(key)
		notify(l.wake)
	case item.has:
		item.value = l.merge(item.value, value)
	default:
		item.value, item.has = value, true
	}
}

// len is the number of keys that wait or run.
func (l *keyedQueue[K, V]) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

func (l *keyedQueue[K, V]) next(now time.Time) (func(context.Context), bool) {
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

func (l *keyedQueue[K, V]) done(key K, value V, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	item := l.pending[key]
	if err != nil {
		if item.has {
			value = l.merge(value, item.value)
		}
		item.value, item.has = value, true
		l.retries.set(key, time.Now().Add(backoff(retryMin, item.failures, retryMax)))
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

func (l *keyedQueue[K, V]) nextDue() (time.Time, bool) {
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
