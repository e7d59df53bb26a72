package dashboard

import (
	"sync"
	"time"
)

// feedLength is the number of changes that the feed keeps.
const feedLength = 200

// change is a change of the state of a work or a cluster.
type change struct {
	Number    uint64 // counts all changes, from 1
	Time      time.Time
	Namespace string // of the work; of a cluster its name
	Name      string // "" for a cluster
	From, To  state  // "" if it was new, or is gone
	Why       string
}

// feed keeps the last changes. It is safe for concurrent use.
type feed struct {
	mu      sync.Mutex
	ring    [feedLength]change // guarded by mu
	written uint64             // guarded by mu: the number of the last change
}

// add notes a change. It costs O(1).
func (f *feed) add(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written++
	c.Number = f.written
	f.ring[f.written%feedLength] = c
}

// since returns the changes after number that the feed still has and that visible allows, the newest
// first, and the number of the last change.
func (f *feed) since(number uint64, visible func(namespace string) bool) ([]change, uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if number > f.written { // of a hub before this one
		number = 0
	}
	var changes []change
	oldest := uint64(1)
	if f.written > feedLength {
		oldest = f.written - feedLength + 1
	}
	for n := f.written; n > number && n >= oldest; n-- {
		if c := f.ring[n%feedLength]; visible(c.Namespace) {
			changes = append(changes, c)
		}
	}
	return changes, f.written
}

// last returns the number of the last change.
func (f *feed) last() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.written
}
