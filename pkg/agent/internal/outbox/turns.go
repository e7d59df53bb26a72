package outbox

import (
	"container/list"

	"github.com/workwire/workwire/pkg/wire"
)

// turns are queued works: those of a source in their order, and the sources by turns, so that no source waits for
// all that another one has asked for. Its zero value is empty.
type turns struct {
	sources  list.List                       // of *sourceQueue, the next one first
	bySource map[wire.SourceID]*list.Element // of sources
	count    int
}

type sourceQueue struct{ works list.List } // of *work

// push adds w at the end.
func (t *turns) push(w *work) {
	of, ok := t.bySource[w.key.Source]
	if !ok {
		of = t.sources.PushBack(&sourceQueue{})
		if t.bySource == nil {
			t.bySource = map[wire.SourceID]*list.Element{}
		}
		t.bySource[w.key.Source] = of
	}
	w.element = of.Value.(*sourceQueue).works.PushBack(w)
	t.count++
}

// front returns the next work, nil if there is none.
func (t *turns) front() *work {
	if first := t.sources.Front(); first != nil {
		return first.Value.(*sourceQueue).works.Front().Value.(*work)
	}
	return nil
}

// remove removes w. It is the turn of the other sources then.
func (t *turns) remove(w *work) {
	of := t.bySource[w.key.Source]
	queue := of.Value.(*sourceQueue)
	queue.works.Remove(w.element)
	w.element = nil
	t.count--
	if queue.works.Len() > 0 {
		t.sources.MoveToBack(of)
	} else {
		t.sources.Remove(of)
		delete(t.bySource, w.key.Source)
	}
}
