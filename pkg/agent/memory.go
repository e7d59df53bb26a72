package agent

import (
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/agent/inbox"
	"github.com/workwire/workwire/pkg/agent/object"
	"github.com/workwire/workwire/pkg/agent/strategy"
)

// memory is what the workers remember of a name from one pass to the next. Only
// the worker that has the name may touch it.
type memory struct {
	// spec is the work that was applied last, nil after a start.
	spec *inbox.Entry
	// applied are the manifests that were last applied with success: what the next
	// ones do not declare any more is told by them.
	applied map[object.Ref]*strategy.Manifest
	// gone are objects that the record names and that are known not to be there
	// any more.
	gone map[object.Ref]struct{}
	// healed counts passes in a row that had to write although the spec was the
	// same; the next may not begin before rest.
	healed int
	rest   time.Time
	lastly time.Time // when it was last healed
}

const (
	// firstRest and lastRest bound the wait between repairs of one work; it
	// doubles, so that two actors that fight over an object do not do so at full
	// speed. The first repair never waits.
	firstRest = 100 * time.Millisecond
	lastRest  = time.Minute
	// peace is how long a work must need no repair to be repaired at once again.
	peace = 2 * lastRest
)

// heal notes that the work had to be repaired at now.
func (m *memory) heal(now time.Time) {
	if now.Sub(m.lastly) > peace {
		m.healed = 0
	}
	m.lastly = now
	pause := firstRest << min(m.healed, 20)
	m.rest = now.Add(min(pause, lastRest))
	m.healed++
}

// workMemories are the memories by name. The map is safe for concurrent use, the
// memories in it are not.
type workMemories struct {
	mu     sync.Mutex
	byName map[string]*memory
}

func newWorkMemories() *workMemories { return &workMemories{byName: map[string]*memory{}} }

func (w *workMemories) of(name string) *memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.byName[name]
	if m == nil {
		m = &memory{}
		w.byName[name] = m
	}
	return m
}

func (w *workMemories) drop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byName, name)
}
