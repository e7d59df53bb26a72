package fairqueue

import (
	"context"
	"sync"
)

// Line passes values from one goroutine to another, in turns of their groups: what a group sends waits
// for one value of each other group, however long these take.
type Line[V any, G comparable] struct {
	length int

	mu      sync.Mutex
	queue   *Queue[*V, G]
	changed *sync.Cond // with mu: a value was added or taken, or the line has ended
	ended   bool
}

// NewLine returns an empty line for this many values. group returns the group of a value.
func NewLine[V any, G comparable](length int, group func(V) G) *Line[V, G] {
	l := &Line[V, G]{length: length, queue: New(func(v *V) G { return group(*v) })}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// Add adds v. It waits while the line is full. Values that are added after Run has returned are dropped.
func (l *Line[V, G]) Add(v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.queue.Len() >= l.length && !l.ended {
		l.changed.Wait()
	}
	if !l.ended {
		l.queue.Push(&v)
		l.changed.Broadcast()
	}
}

// Run calls process for each value, one after the other, until ctx ends. What has not been processed then is
// dropped. It must be called once.
func (l *Line[V, G]) Run(ctx context.Context, process func(context.Context, V)) {
	defer context.AfterFunc(ctx, l.end)()
	for {
		l.mu.Lock()
		for l.queue.Len() == 0 && !l.ended {
			l.changed.Wait()
		}
		if l.ended {
			l.mu.Unlock()
			return
		}
		v := l.queue.Pop()
		l.changed.Broadcast()
		l.mu.Unlock()
		process(ctx, *v)
	}
}

func (l *Line[V, G]) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.changed.Broadcast()
}
