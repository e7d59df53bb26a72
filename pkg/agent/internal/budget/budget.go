// Package budget prices the expressions of works: jq, JSONPath and CEL.
//
// All expressions of a work share one [Budget] in a reconcile. It counts steps, which depend on the
// expressions and the objects only. A reconcile begins with a small allowance; what needs more takes the
// turn, which one reconcile has at a time, so that others find a CPU. If its source has used up its CPU time,
// or another has the turn, the reconcile is deferred: it ends without a status, and comes again.
package budget

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/wire"
)

const (
	// ofWork is how many steps the expressions of a work may take in a reconcile. A step is one of the jq
	// machine, 16 bytes of a path that it selects, a value that a JSONPath visits, or a unit of CEL's cost.
	ofWork = 5_000_000
	// perStep is what a source pays for a step.
	perStep = 100 * time.Nanosecond
	// maxTime ends what takes more CPU time, in case steps do. Because it says little of the expressions, they are
	// evaluated again after lateAgain.
	maxTime   = 10 * time.Second
	lateAgain = time.Minute
	// allowance is how many steps a reconcile may take without the turn; inDebt, while its source has no CPU
	// time left.
	allowance, inDebt = 20_000, 10_000
	// patience is by how much the steps of an allowance may take longer than their price.
	patience = 2
)

// ErrExceeded is the error of an expression for which the budget of the work does not suffice.
var ErrExceeded = errors.New("the expressions of the work cost too much together")

// Budget is what the expressions of a work may still cost in a reconcile. The nil Budget bounds nothing. Start
// and Stop enclose what uses it; what is between them is done by one goroutine at a time.
type Budget struct {
	*account
	left     int // steps, those of kept results counted
	compiled map[string]struct{}
	results  *Results // nil: none are kept
	live     *Budget  // see Live
}

// account is what all budgets of a reconcile share.
type account struct {
	accounts *Accounts
	source   wire.SourceID

	mu       sync.Mutex
	started  time.Time     // of the evaluation under way
	used     time.Duration // what its thread had used at that time
	look     time.Time     // before it, Late has no need to ask the thread
	took     time.Duration // CPU time of evaluations that have ended
	spent    int           // steps that were taken
	free     int           // steps that need no turn
	turn     bool
	deferred bool
	late     bool        // maxTime was over: results say nothing of the expressions
	gate     *sync.Mutex // of the source: one of its reconciles evaluates at a time, beside the one with the turn
	inside   bool        // the gate is held
}

// Again returns a budget as large, for something else in the same reconcile. It keeps no results.
func (b *Budget) Again() *Budget {
	if b == nil {
		return nil
	}
	return &Budget{account: b.account, left: ofWork}
}

// Live returns the budget for expressions on live objects that are about to be written. It is one of its own, so
// that the results for others do not depend on whether something is written.
func (b *Budget) Live() *Budget {
	if b == nil {
		return nil
	}
	if b.live == nil {
		b.live = b.Again()
	}
	return b.live
}

// Start begins an evaluation, which Stop ends, on the same goroutine.
func (b *Budget) Start() {
	if b != nil {
		b.mu.Lock()
		if !b.turn {
			b.gate.Lock()
			b.inside = true
		}
		runtime.LockOSThread()
		b.started, b.used = time.Now(), b.accounts.cpu()
	}
}

// Stop ends an evaluation.
func (b *Budget) Stop() {
	if b != nil {
		b.took += b.accounts.cpu() - b.used
		runtime.UnlockOSThread()
		b.leave()
		b.mu.Unlock()
	}
}

func (c *account) leave() {
	if c.inside {
		c.inside = false
		c.gate.Unlock()
	}
}

// Deferred reports whether results are to be discarded, because the turn is needed.
func (b *Budget) Deferred() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deferred
}

// Spend counts steps that are about to be taken. It returns ErrExceeded if there are not as many left.
func (b *Budget) Spend(steps int) error {
	switch {
	case b == nil:
		return nil
	case b.deferred:
		return ErrExceeded
	case steps > b.left:
		b.left = 0
		return ErrExceeded
	case !b.turn && b.spent+steps > b.free && !b.more():
		return ErrExceeded
	}
	b.spent += steps
	b.left -= steps
	return nil
}

// Compile counts the steps of compiling text, once for a reconcile. If it is cached, its source does not pay.
func (b *Budget) Compile(text string, steps int, cached bool) error {
	if b == nil {
		return nil
	}
	if _, again := b.compiled[text]; again {
		return nil
	}
	if b.compiled == nil {
		b.compiled = map[string]struct{}{}
	}
	b.compiled[text] = struct{}{}
	if cached && steps <= b.left {
		b.left -= steps
		return nil
	}
	return b.Spend(steps)
}

// Run has something evaluated that may take at most limit steps. evaluate is told how many of them it may take now,
// and returns how many it has taken and whether these did not suffice. It is called again if it gets more.
func (b *Budget) Run(limit int, evaluate func(allowed int) (steps int, over bool)) error {
	if b == nil {
		evaluate(limit)
		return nil
	}
	for {
		allowed := min(limit, b.left)
		if !b.turn {
			allowed = min(allowed, b.free-b.spent)
		}
		if b.deferred || allowed <= 0 && limit > 0 {
			if b.deferred || !b.more() {
				return ErrExceeded
			}
			continue
		}
		had := b.turn
		steps, over := evaluate(allowed)
		if !over || allowed == limit {
			return b.Spend(min(steps, allowed))
		}
		b.spent += allowed // in vain
		switch {
		case b.turn != had || b.more():
		case b.deferred:
			return ErrExceeded
		default:
			b.left = 0
			return ErrExceeded
		}
	}
}

// more takes the turn, and reports whether that changed anything.
func (b *Budget) more() bool {
	if b.turn || b.left == 0 {
		return false
	}
	b.turn = b.accounts.acquire(b.account) == 0
	b.deferred = !b.turn
	b.leave() // who has the turn keeps nobody else of the source waiting, and who has not evaluates nothing more
	return b.turn
}

// Late reports whether the evaluations have taken too much CPU time. It costs little: the clock is asked first. It must be
// called on the goroutine of Start.
func (b *Budget) Late() bool {
	if b == nil {
		return false
	}
	limit := maxTime
	if !b.turn {
		limit = time.Duration(b.free) * perStep * patience
	}
	now := time.Now()
	if b.took+now.Sub(b.started) <= limit || now.Before(b.look) { // no thread uses more than the clock says
		return false
	}
	if left := limit - b.took - (b.accounts.cpu() - b.used); left >= 0 {
		b.look = now.Add(left)
		return false
	}
	if b.more() {
		return false
	}
	if !b.deferred {
		b.left, b.late = 0, true
	}
	return true
}

// Refund gives back what a result cost that is not used.
func (b *Budget) Refund(steps int) {
	if b != nil {
		b.left += steps
	}
}

// Left returns how many steps are left, for Keep and Refund.
func (b *Budget) Left() int {
	if b == nil {
		return 0
	}
	return b.left
}
