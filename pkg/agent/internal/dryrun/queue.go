package dryrun

import (
	"context"
	"sync"

	"github.com/workwire/workwire/pkg/wire"
)

// maxWaiting is how many questions of a source wait while one of it is examined.
const maxWaiting = 8

// queue holds questions, and shares the turns between sources: of each source one is examined at a time, and
// sources take turns. It is safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	waiting map[wire.SourceID][]*wire.DryRun
	turns   []wire.SourceID // that have a question waiting and none being examined
	running map[wire.SourceID]bool
	wake    chan struct{} // holds a token if turns may have one
}

func newQueue() *queue {
	return &queue{waiting: map[wire.SourceID][]*wire.DryRun{}, running: map[wire.SourceID]bool{}, wake: make(chan struct{}, 1)}
}

// put adds a question, and reports whether there was a place for it.
func (q *queue) put(question *wire.DryRun) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	source := question.Source
	if len(q.waiting[source]) >= maxWaiting {
		return false
	}
	q.waiting[source] = append(q.waiting[source], question)
	if len(q.waiting[source]) == 1 && !q.running[source] {
		q.turns = append(q.turns, source)
		q.signal()
	}
	return true
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// next waits for the question whose turn it is. done must be called when it was examined. The error is that
// of ctx.
func (q *queue) next(ctx context.Context) (question *wire.DryRun, done func(), err error) {
	for {
		if question := q.pop(); question != nil {
			return question, func() { q.done(question.Source) }, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-q.wake:
		}
	}
}

// pop removes and returns the first question of the source whose turn it is, nil if there is none.
func (q *queue) pop() *wire.DryRun {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.turns) == 0 {
		return nil
	}
	source := q.turns[0]
	q.turns = q.turns[1:]
	question := q.waiting[source][0]
	if rest := q.waiting[source][1:]; len(rest) > 0 {
		q.waiting[source] = rest
	} else {
		delete(q.waiting, source)
	}
	q.running[source] = true
	return question
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
