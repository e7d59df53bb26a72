package delivery

import (
	"container/heap"
	"time"
)

// schedule is a heap of works by the time at which each is due. A work is in it at most once; the
// zero value is empty. All operations cost O(log n).
type schedule struct{ heap dueHeap }

// set makes w due at this time, in place of an earlier or later one.
func (s *schedule) set(w *workRecord, at time.Time) {
	w.dueAt = at
	if w.dueIndex > 0 {
		heap.Fix(&s.heap, int(w.dueIndex)-1)
		return
	}
	heap.Push(&s.heap, w)
}

// remove takes w off the schedule if it is on it.
func (s *schedule) remove(w *workRecord) {
	if w.dueIndex > 0 {
		heap.Remove(&s.heap, int(w.dueIndex)-1)
	}
}

// pop removes and returns one work that is due by now, nil if there is none.
func (s *schedule) pop(now time.Time) *workRecord {
	if len(s.heap) == 0 || s.heap[0].dueAt.After(now) {
		return nil
	}
	return heap.Pop(&s.heap).(*workRecord)
}

// next returns the earliest time at which a work is due.
func (s *schedule) next() (time.Time, bool) {
	if len(s.heap) == 0 {
		return time.Time{}, false
	}
	return s.heap[0].dueAt, true
}

// dueHeap implements [heap.Interface]. The dueIndex of a work is its position plus 1, or 0.
type dueHeap []*workRecord

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].dueAt.Before(h[j].dueAt) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].dueIndex, h[j].dueIndex = int32(i+1), int32(j+1)
}

func (h *dueHeap) Push(x any) {
	w := x.(*workRecord)
	*h = append(*h, w)
	w.dueIndex = int32(len(*h))
}

func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.dueIndex = 0
	return w
}
