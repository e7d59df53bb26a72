package agent

import (
	"errors"
	"fmt"
	"strings"
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
	// applied says in which spec the manifest stands that was last applied to an
	// object with success: what the next one does not declare any more is told by it.
	// Nil: in spec, for all of its manifests. See earlier.
	applied map[object.Ref]*inbox.Entry
	// errs says why manifests of spec were not applied when that was last tried.
	errs []error
	// gone are objects that the record names and that are known not to be there
	// any more.
	gone map[object.Ref]struct{}
	// healed counts passes in a row that had to write although the spec was the
	// same; the next may not begin before rest.
	healed int
	rest   time.Time
	lastly time.Time // when it was last healed
	// fights are the objects that others keep changing.
	fights map[object.Ref]error
}

const (
	// firstRest and lastRest bound the wait between repairs of one work; it
	// doubles, so that two actors that fight over an object do not do so at full
	// speed. The first repair never waits.
	firstRest = 100 * time.Millisecond
	lastRest  = time.Minute
	// peace is how long a work must need no repair to be repaired at once again,
	// and for a fight to be over.
	peace = 2 * lastRest
	// manyRepairs is how many repairs in a row make a fight.
	manyRepairs = 3
)

// renew begins anew with another spec.
func (m *memory) renew() {
	m.healed, m.rest, m.gone, m.errs, m.fights = 0, time.Time{}, nil, nil, nil
}

// miss notes that an object which the record names is not there any more.
func (m *memory) miss(ref object.Ref) {
	if m.gone == nil {
		m.gone = map[object.Ref]struct{}{}
	}
	m.gone[ref] = struct{}{}
}

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

// contested says whether the next repair is one of many.
func (m *memory) contested() bool { return m.healed >= manyRepairs }

// fightOver notes that an object had to be repaired, once more.
func (m *memory) fightOver(ref object.Ref, outcome *strategy.Outcome) {
	if !m.contested() {
		return
	}
	if m.fights == nil {
		m.fights = map[object.Ref]error{}
	}
	m.fights[ref] = fight(outcome)
}

// fightFor gives what is to be said of an object that others keep changing, nil
// if they do not.
func (m *memory) fightFor(ref object.Ref) error { return m.fights[ref] }

// calm ends fights when nothing had to be repaired for long, and says when that
// will be; 0 if there are none.
func (m *memory) calm(now time.Time) time.Duration {
	if len(m.fights) == 0 {
		return 0
	}
	if left := m.lastly.Add(peace).Sub(now); left > 0 {
		return left
	}
	m.fights = nil
	return 0
}

// fight says who keeps changing what. Its text does not change as long as the
// fight is the same one.
func fight(outcome *strategy.Outcome) error {
	if outcome.Action == strategy.Created {
		return errors.New("it is deleted again and again by another actor: it is made anew less and less often until that ends")
	}
	who := "another actor"
	if len(outcome.Rivals) > 0 {
		who = fmt.Sprintf("%q", outcome.Rivals)
		who = "field manager " + strings.Trim(strings.ReplaceAll(who, `" "`, `", "`), "[]")
	}
	return fmt.Errorf("conflict with %s, which changes %s again and again: it is restored less and less often until that ends; "+
		"leave the field to it, or ignore it with ignoreFields of ServerSideApply", who, strings.Join(outcome.Differences, ", "))
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
