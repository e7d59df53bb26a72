// Package fairqueue is the order of a work queue in which groups take turns: one key of each group after the
// other, those of one group in the order in which they came. So a key waits for one key of each other
// group, however many these have.
//
//	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: fairqueue.New(sourceOf)})
package fairqueue

import "slices"

// Queue implements the Queue of a work queue of client-go, which owns it then. It is not safe for concurrent use. All calls cost
// O(1), but for Remove.
type Queue[K, G comparable] struct {
	group  func(K) G
	length int
	keys   map[G][]K
	next   []G // that have keys
}

// New returns an empty queue. group returns the group of a key, always the same.
func New[K, G comparable](group func(K) G) *Queue[K, G] {
	return &Queue[K, G]{group: group, keys: map[G][]K{}}
}

// Touch does nothing: a key that is added again keeps its place.
func (q *Queue[K, G]) Touch(K) {}

// Push adds key behind the others of its group.
func (q *Queue[K, G]) Push(key K) {
	group := q.group(key)
	if len(q.keys[group]) == 0 {
		q.next = append(q.next, group)
	}
	q.keys[group] = append(q.keys[group], key)
	q.length++
}

// Len returns the number of keys.
func (q *Queue[K, G]) Len() int { return q.length }

// Pop removes and returns the next key. The queue must not be empty.
func (q *Queue[K, G]) Pop() K {
	group := q.next[0]
	q.next = q.next[1:]
	keys := q.keys[group]
	if q.length--; len(keys) == 1 {
		delete(q.keys, group)
	} else {
		q.keys[group] = keys[1:]
		q.next = append(q.next, group)
	}
	return keys[0]
}

// Remove removes key, and reports whether it was there. It visits the keys of its group, and all groups if it is the last of its own.
func (q *Queue[K, G]) Remove(key K) bool {
	group := q.group(key)
	i := slices.Index(q.keys[group], key)
	if i < 0 {
		return false
	}
	q.length--
	if q.keys[group] = slices.Delete(q.keys[group], i, i+1); len(q.keys[group]) == 0 {
		delete(q.keys, group)
		q.next = slices.DeleteFunc(q.next, func(g G) bool { return g == group })
	}
	return true
}
