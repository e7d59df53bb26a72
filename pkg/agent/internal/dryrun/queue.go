package dryrun

import (
	"sync"

	"k8s.io/client-go/util/workqueue"

	"github.com/workwire/workwire/pkg/wire"
)

// maxWaiting is how many questions of a source wait while one of it is examined.
const maxWaiting = 8

// queue holds questions, and shares the turns between sources: of each source one is examined at a time, and
// sources take turns. It is safe for concurrent use.
type queue struct {
	turns workqueue.TypedInterface[wire.SourceID] // hands out a source once until that is done

	mu      sync.Mutex
	waiting map[wire.SourceID][]*wire.DryRun
}

func newQueue() *queue {
	return &queue{turns: workqueue.NewTyped[wire.SourceID](), waiting: map[wire.SourceID][]*wire.DryRun{}}
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
	q.turns.Add(source)
	return true
}

// next waits for the question whose turn it is, nil once turns is shut down. done must be called when it was examined.
func (q *queue) next() (question *wire.DryRun, done func()) {
	source, shutdown := q.turns.Get()
	if shutdown {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	question = q.waiting[source][0]
	if q.waiting[source] = q.waiting[source][1:]; len(q.waiting[source]) > 0 {
		q.turns.Add(source) // once this one is done
	} else {
		delete(q.waiting, source)
	}
	return question, func() { q.turns.Done(source) }
}
