package fairqueue

import "slices"

// Nested is a queue of which groups of groups take turns: one key of each outer group after the other, and of one outer group, one
// key of each inner group. So a key waits for one key of each other outer group, however many keys and inner groups these
// have. All calls cost O(1), but for PopLongest, and for Remove of the last key of a group.
type Nested[K, O, G comparable] struct {
	outer  func(K) O
	inner  func(K) G
	length int
	queues map[O]*Queue[K, G]
	next   []O // that have keys
}

// NewNested returns an empty queue. outer and inner return the groups of a key, always the same.
func NewNested[K, O, G comparable](outer func(K) O, inner func(K) G) *Nested[K, O, G] {
	return &Nested[K, O, G]{outer: outer, inner: inner, queues: map[O]*Queue[K, G]{}}
}

// Push adds key behind the others of its groups.
func (q *Nested[K, O, G]) Push(key K) {
	outer := q.outer(key)
	queue := q.queues[outer]
	if queue == nil {
		queue = New(q.inner)
		q.queues[outer] = queue
		q.next = append(q.next, outer)
	}
	queue.Push(key)
	q.length++
}

// Len returns the number of keys.
func (q *Nested[K, O, G]) Len() int { return q.length }

// LenOf returns the number of keys of an outer group, which has some.
func (q *Nested[K, O, G]) LenOf(outer O) int { return q.queues[outer].Len() }

// Pop removes and returns the next key. The queue must not be empty.
func (q *Nested[K, O, G]) Pop() K {
	outer := q.next[0]
	q.next = q.next[1:]
	queue := q.queues[outer]
	key := queue.Pop()
	if q.length--; queue.Len() == 0 {
		delete(q.queues, outer)
	} else {
		q.next = append(q.next, outer)
	}
	return key
}

// Remove removes key, and reports whether it was there; see [Queue.Remove].
func (q *Nested[K, O, G]) Remove(key K) bool {
	outer := q.outer(key)
	queue := q.queues[outer]
	if queue == nil || !queue.Remove(key) {
		return false
	}
	if q.length--; queue.Len() == 0 {
		delete(q.queues, outer)
		q.next = slices.DeleteFunc(q.next, func(o O) bool { return o == outer })
	}
	return true
}

// PopLongest removes and returns the first key of the inner group with the most keys, of an outer group that has some. It visits
// the inner groups.
func (q *Nested[K, O, G]) PopLongest(outer O) K {
	queue := q.queues[outer]
	group := slices.MaxFunc(queue.next, func(a, b G) int { return queue.keys[a].Len() - queue.keys[b].Len() })
	key := queue.keys[group].Front().Value.(K)
	q.Remove(key)
	return key
}
