package source

import (
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// historySize is how many changes a watch may be behind.
const historySize = 4096

// history is the latest changes of a store, each with the resourceVersion after
// that of the one before. Its zero value is empty.
type history struct {
	events []change // of versions first()..last, in a ring
	next   int      // where the next one goes once the ring is full
	last   int64
}

// add appends the change of version last+1.
func (h *history) add(ch change) {
	h.last++
	if len(h.events) < historySize {
		h.events = append(h.events, ch)
		return
	}
	h.events[h.next] = ch
	h.next = (h.next + 1) % historySize
}

// after gives up to n changes that follow version, or false when they are no
// longer all there.
func (h *history) after(version int64, n int) ([]change, bool) {
	missing := h.last - version
	if missing > int64(len(h.events)) {
		return nil, false
	}
	found := make([]change, 0, min(missing, int64(n)))
	for i := range min(missing, int64(n)) {
		at := len(h.events) - int(missing) + int(i)
		found = append(found, h.events[(h.next+at)%len(h.events)])
	}
	return found, true
}

// event is what a watch for works that match sees of ch, or false for nothing.
func (ch change) event(match func(*workv1.ManifestWork) bool) (watch.EventType, *workv1.ManifestWork, bool) {
	did := ch.old != nil && match(ch.old.work)
	does := !ch.gone && match(ch.new.work)
	switch {
	case did && does:
		return watch.Modified, ch.new.work, true
	case does:
		return watch.Added, ch.new.work, true
	case did && !ch.gone: // it still is, but matches no more: as it was when it did
		last := shallowCopy(ch.old.work)
		last.ResourceVersion = ch.new.work.ResourceVersion
		return watch.Deleted, last, true
	case did:
		return watch.Deleted, ch.new.work, true
	default:
		return "", nil, false
	}
}
