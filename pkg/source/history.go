package source

import (
	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// historySize is the number of changes that a watch may be behind.
const historySize = 4096

// history contains the latest changes of a store, with consecutive resourceVersions. Its zero value
// is empty.
type history struct {
	events []change // a ring buffer
	next   int      // the position of the next change once the ring is full
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

// after returns up to n changes that follow version, and false if some of them are no longer in the
// history.
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

// watchEvent returns the event for ch in a watch on the works that match, and false for none.
func (ch change) watchEvent(match func(*workv1.ManifestWork) bool) (watch.EventType, *workv1.ManifestWork, bool) {
	matched := ch.old != nil && match(ch.old.work)
	matches := !ch.removed && match(ch.new.work)
	switch {
	case matched && matches:
		return watch.Modified, ch.new.work, true
	case matches:
		return watch.Added, ch.new.work, true
	case matched && !ch.removed: // the work does not match anymore: its last state that did
		last := shallowCopy(ch.old.work)
		last.ResourceVersion = ch.new.work.ResourceVersion
		return watch.Deleted, last, true
	case matched:
		return watch.Deleted, ch.new.work, true
	default:
		return "", nil, false
	}
}
