package outbox

import (
	"container/list"

	"github.com/workwire/workwire/pkg/wire"
)

// roundRobin is a queue of works: those of a source in their order, and the sources by turns, so that no source waits for
// all that another one has asked for. Its zero value is empty.
type roundRobin struct {
	sources  list.List                       // of *sourceQueue, the next one first
	bySource map[wire.SourceID]*list.Element // of sources
	count    int
}

type sourceQueue struct{ works list.List } // of *work

// push adds w at the end.
func (r *roundRobin) push(w *work) {
	of, ok := r.bySource[w.key.Source]
	if !ok {
		of = r.sources.PushBack(&sourceQueue{})
		if r.bySource == nil {
			r.bySource = map[wire.SourceID]*list.Element{}
		}
		r.bySource[w.key.Source] = of
	}
	w.element = of.Value.(*sourceQueue).works.PushBack(w)
	r.count++
}

// front returns the next work, nil if there is none.
func (r *roundRobin) front() *work {
	if first := r.sources.Front(); first != nil {
		return first.Value.(*sourceQueue).works.Front().Value.(*work)
	}
	return nil
}

// remove removes w. It is the turn of the other sources then.
func (r *roundRobin) remove(w *work) {
	of := r.bySource[w.key.Source]
	queue := of.Value.(*sourceQueue)
	queue.works.Remove(w.element)
	w.element = nil
	r.count--
	if queue.works.Len() > 0 {
		r.sources.MoveToBack(of)
	} else {
		r.sources.Remove(of)
		delete(r.bySource, w.key.Source)
	}
}
