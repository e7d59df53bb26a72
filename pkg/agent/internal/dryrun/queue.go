package dryrun

import (
	"context"
	"sync"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// maxWaiting is how many questions of a source wait while one of it is examined, maxAllWaiting how
	// many of all.
	maxWaiting    = 8
	maxAllWaiting = 32
)

// task is a question, or one that is refused.
type task struct {
	question *wire.DryRun
	refused  error // why it is not examined; nil if it is
}

// queue holds questions, and shares the turns and places between sources: of each source one is examined
// at a time, and sources take turns. It is safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	waiting map[wire.SourceID][]task
	turns   []wire.SourceID // that have a question waiting and none being examined
	running map[wire.SourceID]bool
	size    int
	wake    chan struct{} // holds a token if turns may have one
}

func newQueue() *queue {
	return &queue{waiting: map[wire.SourceID][]task{}, running: map[wire.SourceID]bool{}, wake: make(chan struct{}, 1)}
}

// put adds a task. It returns the one for which there is no place, if there is none: that one, or if the queue
// is full, the newest one of the source that has most.
func (q *queue) put(t task) (without task, full bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	source := t.question.Source
	if len(q.waiting[source]) >= maxWaiting {
		return t, true
	}
	if q.size >= maxAllWaiting {
		most := source
		for other, tasks := range q.waiting { // at most maxAllWaiting
			if len(tasks) > len(q.waiting[most])+1 || len(tasks) > len(q.waiting[most]) && most != source {
				most = other
			}
		}
		if most == source {
			return t, true
		}
		last := len(q.waiting[most]) - 1
		without, full = q.waiting[most][last], true
		q.waiting[most] = q.waiting[most][:last]
		q.size--
	}
	q.waiting[source] = append(q.waiting[source], t)
	q.size++
	if len(q.waiting[source]) == 1 && !q.running[source] {
		q.turns = append(q.turns, source)
		q.signal()
	}
	return without, full
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for the question whose turn it is. done must be called when it was examined. The error is that
// of ctx.
func (q *queue) next(ctx context.Context) (t task, done func(), err error) {
	for {
		if t, ok := q.pop(); ok {
			return t, func() { q.done(t.question.Source) }, nil
		}
		select {
		case <-ctx.Done():
			return task{}, nil, ctx.Err()
		case <-q.wake:
		}
	}
}

// pop removes and returns the first task of the source whose turn it is.
func (q *queue) pop() (t task, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return task{}, false
	}
	source := q.turns[0]
	q.turns = q.turns[1:]
	t = q.waiting[source][0]
	if rest := q.waiting[source][1:]; len(rest) > 0 {
		q.waiting[source] = rest
	} else {
		delete(q.waiting, source)
	}
	q.size--
	q.running[source] = true
	return t, true
}

// done gives the source of a question that was examined its next turn.
func (q *queue) done(source wire.SourceID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.running, source)
	if len(q.waiting[source]) > 0 {
		q.turns = append(q.turns, source)
		q.signal()
	}
}
