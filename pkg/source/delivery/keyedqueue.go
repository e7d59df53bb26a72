package delivery

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/runtime/fairqueue"
)

// Limits of the exponential backoff between retries of a key.
const (
	minRetryDelay = 100 * time.Millisecond
	maxRetryDelay = 30 * time.Second
)

// keyedQueue passes the newest value of each key to process. Calls are serialized per key and
// concurrent across keys. Values that are added meanwhile are merged. If process asks for a retry,
// it is called again with the merged value after a backoff; values added during the backoff do not
// shorten it. Groups of keys take turns. All methods are safe for concurrent use.
type keyedQueue[K comparable, V any] struct {
	merge   func(older, newer V) V
	process func(context.Context, K, V) (retry bool)
	// admit, if set, may put off the processing of a value, which it may change; newer values are merged with it.
	admit   func(K, *V) (wait time.Duration)
	ready   *workqueue.Typed[K]
	backoff workqueue.TypedRateLimiter[K]

	mu      sync.Mutex
	pending map[K]*queueItem[V] // guarded by mu
}

// queueItem is the state of a key that has a value or is busy.
type queueItem[V any] struct {
	value    V
	hasValue bool // value has not been processed
	busy     bool // in process or in backoff: the key is not in ready
}

func newKeyedQueue[K, G comparable, V any](group func(K) G, merge func(older, newer V) V, process func(context.Context, K, V) (retry bool)) *keyedQueue[K, V] {
	return &keyedQueue[K, V]{
		merge:   merge,
		process: process,
		ready:   workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[K]{Queue: fairqueue.New(group)}),
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[K](minRetryDelay, maxRetryDelay),
		pending: make(map[K]*queueItem[V]),
	}
}

// add enqueues value. It does not block.
func (q *keyedQueue[K, V]) add(key K, value V) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item, ok := q.pending[key]
	if !ok {
		item = &queueItem[V]{}
		q.pending[key] = item
	}
	if item.hasValue {
		value = q.merge(item.value, value)
	}
	item.value, item.hasValue = value, true
	if !item.busy {
		q.ready.Add(key)
	}
}

// clear drops the values of the keys that match: process gets the zero value for those that are in
// backoff. It costs one pass over the keys.
func (q *keyedQueue[K, V]) clear(match func(K) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, item := range q.pending {
		if match(key) {
			var none V
			item.value = none
		}
	}
}

// len returns the number of keys that wait, are in process, or are in backoff.
func (q *keyedQueue[K, V]) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.pending)
}

// run processes values with this many workers until ctx ends and all calls have returned.
func (q *keyedQueue[K, V]) run(ctx context.Context, workers int) {
	defer context.AfterFunc(ctx, q.ready.ShutDown)()
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for q.processNext(ctx) {
			}
		})
	}
	running.Wait()
}

func (q *keyedQueue[K, V]) processNext(ctx context.Context) bool {
	key, shutdown := q.ready.Get()
	if shutdown || ctx.Err() != nil {
		return false
	}
	defer q.ready.Done(key)
	q.mu.Lock()
	item := q.pending[key]
	if item == nil || item.busy {
		// An add between Get and Lock of the previous call put the key into ready again, and that
		// call took the value. A key in backoff is added to ready when the backoff ends.
		q.mu.Unlock()
		return true
	}
	value := item.value
	*item = queueItem[V]{busy: true}
	q.mu.Unlock()
	if q.admit != nil {
		if wait := q.admit(key, &value); wait > 0 {
			q.putOff(key, value, wait)
			return true
		}
	}
	if q.process(ctx, key, value) {
		q.putOff(key, value, q.backoff.When(key))
	} else {
		q.complete(key)
	}
	return true
}

// putOff has value processed after a while, with what is added until then.
func (q *keyedQueue[K, V]) putOff(key K, value V, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	item := q.pending[key]
	if item.hasValue {
		value = q.merge(value, item.value)
	}
	item.value, item.hasValue = value, true
	time.AfterFunc(wait, func() { q.requeue(key) })
}

// complete ends the processing of a value.
func (q *keyedQueue[K, V]) complete(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.backoff.Forget(key)
	item := q.pending[key]
	if !item.hasValue {
		delete(q.pending, key)
		return
	}
	item.busy = false
	q.ready.Add(key)
}

// requeue ends the backoff of key.
func (q *keyedQueue[K, V]) requeue(key K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending[key].busy = false
	q.ready.Add(key)
}
