// Package schedule has what is due later, by time:
//
//	type job struct {
//		schedule.Timer
//		...
//	}
//	var due schedule.Schedule[*job]
//	due.Set(j, now.Add(pause))
//	...
//	for j, ok := due.Pop(now); ok; j, ok = due.Pop(now) {
//		...
//	}
package schedule

import (
	"container/heap"
	"time"
)

// Timer is when something is due, and is embedded in it. Its schedule owns it.
type Timer struct {
	at    time.Time
	index int32 // in the heap, plus 1; 0: it is not scheduled
}

func (t *Timer) due() *Timer { return t }

// Scheduled reports whether it is on a schedule.
func (t *Timer) Scheduled() bool { return t.index > 0 }

// Schedule is a heap of what is due later, by time. A thing is in it at most once; the zero value is empty. It is
// not safe for concurrent use. All operations cost O(log n).
type Schedule[T interface{ due() *Timer }] struct{ heap dueHeap[T] }

// Len returns the number of things.
func (s *Schedule[T]) Len() int { return len(s.heap) }

// Set makes x due at this time, in place of an earlier or later one.
func (s *Schedule[T]) Set(x T, at time.Time) {
	t := x.due()
	t.at = at
	if t.Scheduled() {
		heap.Fix(&s.heap, int(t.index)-1)
		return
	}
	heap.Push(&s.heap, x)
}

// Remove takes x off the schedule if it is on it.
func (s *Schedule[T]) Remove(x T) {
	if t := x.due(); t.Scheduled() {
		heap.Remove(&s.heap, int(t.index)-1)
	}
}

// Pop removes and returns one thing that is due by now.
func (s *Schedule[T]) Pop(now time.Time) (x T, ok bool) {
	if len(s.heap) == 0 || s.heap[0].due().at.After(now) {
		return x, false
	}
	return heap.Pop(&s.heap).(T), true
}

// Next returns the earliest time at which something is due; zero: never.
func (s *Schedule[T]) Next() time.Time {
	if len(s.heap) == 0 {
		return time.Time{}
	}
	return s.heap[0].due().at
}

// dueHeap implements [heap.Interface].
type dueHeap[T interface{ due() *Timer }] []T

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
