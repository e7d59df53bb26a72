// Package fairqueue is the order of a work queue in which groups take turns: one key of each group after the
// other, those of one group in the order in which they came. So a key waits for one key of each other
// group, however many these have.
//
//	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Queue: fairqueue.New(sourceOf)})
package fairqueue

import (
	"container/list"
	"slices"
)

// Queue implements the Queue of a work queue of client-go, which owns it then. A key is in it at most once. It is not safe for
// concurrent use. All calls cost O(1), but for Remove of the last key of a group, which visits the groups.
type Queue[K, G comparable] struct {
	group func(K) G
	keys  map[G]*list.List // of K
	at    map[K]*list.Element
	next  []G // that have keys
}

// New returns an empty queue. group returns the group of a key, always the same.
func New[K, G comparable](group func(K) G) *Queue[K, G] {
	return &Queue[K, G]{group: group, keys: map[G]*list.List{}, at: map[K]*list.Element{}}
}

// Touch does nothing: a key that is added again keeps its place.
func (q *Queue[K, G]) Touch(K) {}

// Push adds key behind the others of its group.
func (q *Queue[K, G]) Push(key K) {
	group := q.group(key)
	keys := q.keys[group]
	if keys == nil {
		keys = list.New()
		q.keys[group] = keys
		q.next = append(q.next, group)
	}
	q.at[key] = keys.PushBack(key)
}

// Len returns the number of keys.
func (q *Queue[K, G]) Len() int { return len(q.at) }

// Pop removes and returns the next key. The queue must not be empty.
func (q *Queue[K, G]) Pop() K {
	group := q.next[0]
	q.next = q.next[1:]
	key := q.keys[group].Front().Value.(K)
	if !q.remove(group, key) {
		q.next = append(q.next, group)
	}
	return key
}

// Remove removes key, and reports whether it was there.
func (q *Queue[K, G]) Remove(key K) bool {
	if q.at[key] == nil {
		return false
	}
	group := q.group(key)
	if q.remove(group, key) {
		q.next = slices.DeleteFunc(q.next, func(g G) bool { return g == group })
	}
	return true
}

// remove removes key from its group, and reports whether it was the last one.
func (q *Queue[K, G]) remove(group G, key K) (last bool) {
	keys := q.keys[group]
	keys.Remove(q.at[key])
	delete(q.at, key)
	if last = keys.Len() == 0; last {
		delete(q.keys, group)
	}
	return last
}
