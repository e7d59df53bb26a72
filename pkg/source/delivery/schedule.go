package delivery

import (
	"container/heap"
	"time"
)

// schedule holds keys with the time at which each is due, one time per key.
// Its zero value is empty. Every operation costs O(log n).
type schedule[K comparable] struct {
	slots slots[K]
	byKey map[K]*slot[K]
}

type slot[K comparable] struct {
	key   K
	at    time.Time
	index int
}

// set makes key due at, in place of the time it had.
func (s *schedule[K]) set(key K, at time.Time) {
	if found, ok := s.byKey[key]; ok {
		found.at = at
		heap.Fix(&s.slots, found.index)
		return
	}
	if s.byKey == nil {
		s.byKey = make(map[K]*slot[K])
	}
	added := &slot[K]{key: key, at: at}
	s.byKey[key] = added
	heap.Push(&s.slots, added)
}

// remove makes key due never.
func (s *schedule[K]) remove(key K) {
	if found, ok := s.byKey[key]; ok {
		heap.Remove(&s.slots, found.index)
		delete(s.byKey, key)
	}
}

// pop removes and gives one key that is due by now.
func (s *schedule[K]) pop(now time.Time) (K, bool) {
	if len(s.slots) == 0 || s.slots[0].at.After(now) {
		var none K
		return none, false
	}
	key := s.slots[0].key
	s.remove(key)
	return key, true
}

// next is the earliest time at which a key is due.
func (s *schedule[K]) next() (time.Time, bool) {
	if len(s.slots) == 0 {
		return time.Time{}, false
	}
	return s.slots[0].at, true
}

// slots is the heap of a schedule.
type slots[K comparable] []*slot[K]

func (s slots[K]) Len() int           { return len(s) }
func (s slots[K]) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s slots[K]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

func (s *slots[K]) Push(x any) {
	added := x.(*slot[K])
	added.index = len(*s)
	*s = append(*s, added)
}

func (s *slots[K]) Pop() any {
	last := len(*s) - 1
	popped := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	return popped
}
