package source

import (
	"sort"

	"k8s.io/apimachinery/pkg/watch"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
)

// historySize is the number of changes that a watch may be behind.
const historySize = 4096

// history contains the latest changes of a memory, in the order of their versions. Its zero value is
// empty.
type history struct {
	events []change // a ring buffer
	next   int      // the position of the next change once the ring is full
	count  int64    // of all changes so far: the position of the next one
}

// add appends a change.
func (h *history) add(ch change) {
	h.count++
	if len(h.events) < historySize {
		h.events = append(h.events, ch)
		return
	}
	h.events[h.next] = ch
	h.next = (h.next + 1) % historySize
}

// at returns the change at a position.
func (h *history) at(position int64) *change {
	i := len(h.events) - int(h.count-position)
	return &h.events[(h.next+i)%len(h.events)]
}

// find returns the position of the first change after version, and false if some of those changes are
// no longer in the history, or if the memory never had that version: another replica has stored
// several changes at once. newest is the version of the memory.
func (h *history) find(version, newest int64) (int64, bool) {
	first := h.count - int64(len(h.events))
	n := sort.Search(len(h.events), func(i int) bool { return h.at(first+int64(i)).version > version })
	position := first + int64(n)
	if position == h.count {
		return position, version == newest
	}
	return position, h.at(position).from == version
}

// after returns up to n changes from a position, and false if some of them are no longer in the
// history.
func (h *history) after(position int64, n int) ([]change, bool) {
	missing := h.count - position
	if missing > int64(len(h.events)) {
		return nil, false
	}
	found := make([]change, 0, min(missing, int64(n)))
	for i := range min(missing, int64(n)) {
		found = append(found, *h.at(position + i))
	}
	return found, true
}

// watchEvent returns the event for ch in a watch on the works that match, and false for none.
func (ch change) watchEvent(match func(*workv1.ManifestWork) bool) (watch.EventType, *workv1.ManifestWork, bool) {
	// Another replica may have made and removed a work at once; a watch that comes from there has
	// seen it.
	matched := ch.old != nil && match(ch.old.work) || ch.old == nil && ch.removed && match(ch.new.work)
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
