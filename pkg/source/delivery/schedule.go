package delivery

import (
	"container/heap"
	"time"
)

// timer is when something is due. Its schedule owns it.
type timer struct {
	at    time.Time
	index int32 // in the heap, plus 1; 0: it is not scheduled
}

func (t *timer) due() *timer { return t }

// schedule is a heap of what is due later, by time. A thing is in it at most once; the zero value is empty.
// All operations cost O(log n).
type schedule[T interface{ due() *timer }] struct{ heap dueHeap[T] }

// set makes x due at this time, in place of an earlier or later one.
func (s *schedule[T]) set(x T, at time.Time) {
	t := x.due()
	t.at = at
	if t.index > 0 {
		heap.Fix(&s.heap, int(t.index)-1)
		return
	}
	heap.Push(&s.heap, x)
}

// remove takes x off the schedule if it is on it.
func (s *schedule[T]) remove(x T) {
	if t := x.due(); t.index > 0 {
		heap.Remove(&s.heap, int(t.index)-1)
	}
}

// pop removes and returns one thing that is due by now.
func (s *schedule[T]) pop(now time.Time) (x T, ok bool) {
	if len(s.heap) == 0 || s.heap[0].due().at.After(now) {
		return x, false
	}
	return heap.Pop(&s.heap).(T), true
}

// next returns the earliest time at which something is due; zero: never.
func (s *schedule[T]) next() time.Time {
	if len(s.heap) == 0 {
		return time.Time{}
	}
	return s.heap[0].due().at
}

// dueHeap implements [heap.Interface].
type dueHeap[T interface{ due() *timer }] []T

func (h dueHeap[T]) Len() int           { return len(h) }
func (h dueHeap[T]) Less(i, j int) bool { return h[i].due().at.Before(h[j].due().at) }
func (h dueHeap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].due().index, h[j].due().index = int32(i+1), int32(j+1)
}

func (h *dueHeap[T]) Push(x any) {
	*h = append(*h, x.(T))
	x.(T).due().index = int32(len(*h))
}

func (h *dueHeap[T]) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	clear((*h)[last:])
	*h = (*h)[:last]
	x.due().index = 0
	return x
}
