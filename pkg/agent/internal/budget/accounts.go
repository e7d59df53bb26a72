package budget

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

const (
	// busy is after how long to ask for the turn again that another has.
	busy = 20 * time.Millisecond
	// maxTurn ends a turn: what takes longer waits for a server, and not for a CPU.
	maxTurn = 2 * time.Second
	// charged is the least cost that a source pays.
	charged = time.Millisecond
	// maxKept is how many bytes of results are kept for the works of a source.
	maxKept = 8 << 20
)

// Accounts give turns to reconciles whose expressions are expensive, and charge their sources. They are safe for
// concurrent use.
type Accounts struct {
	quotas *quota.Quotas[wire.SourceID]
	seed   maphash.Seed
	gates  [64]sync.Mutex       // of sources, by their hash
	cpu    func() time.Duration // what the thread of the caller has used

	mu     sync.Mutex // guards all below
	holder *account   // of the turn; nil: nobody
	since  time.Time
	kept   map[wire.SourceID]int // bytes of results
}

// New returns accounts that charge quotas with [quota.CPU].
func New(quotas *quota.Quotas[wire.SourceID]) *Accounts {
	return &Accounts{quotas: quotas, seed: maphash.MakeSeed(), cpu: threadTime, kept: map[wire.SourceID]int{}}
}

// Begin returns the budget of a reconcile, with an allowance. results are those of the work, or nil. End must be called.
func (a *Accounts) Begin(source wire.SourceID, results *Results) *Budget {
	gate := &a.gates[maphash.String(a.seed, string(source))%uint64(len(a.gates))]
	b := &Budget{account: &account{accounts: a, source: source, free: allowance, gate: gate}, left: ofWork, results: results}
	if a.Wait(source) > 0 {
		b.free = inDebt
	}
	return b
}

// BeginTurn is Begin for a work that needs the turn. If it is not to have, BeginTurn returns after how long to come
// again.
func (a *Accounts) BeginTurn(source wire.SourceID, results *Results) (*Budget, time.Duration) {
	b := &Budget{account: &account{accounts: a, source: source, turn: true}, left: ofWork, results: results}
	if wait := a.acquire(b.account); wait > 0 {
		return nil, wait
	}
	return b, 0
}

// Wait returns how long it is until a source has CPU time left; 0: it has.
func (a *Accounts) Wait(source wire.SourceID) time.Duration {
	return a.quotas.Wait(source, quota.Cost{quota.CPU: 1}, time.Now())
}

// acquire gives the turn to a reconcile. It returns after how long to try again, 0 if it has the turn.
func (a *Accounts) acquire(c *account) time.Duration {
	if wait := a.Wait(c.source); wait > 0 {
		return wait
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.holder != nil && now.Sub(a.since) < maxTurn {
		return busy
	}
	a.holder, a.since = c, now
	return 0
}

// End ends the reconcile of b, charges its source, and reports whether it was expensive: whether it needs the turn next
// time. If it was deferred, or late, End returns after how long to do it again.
func (a *Accounts) End(b *Budget) (expensive bool, wait time.Duration) {
	if b == nil {
		return false, 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := time.Duration(b.spent) * perStep
	if b.turn {
		cost = max(cost, b.took)
		a.mu.Lock()
		if a.holder == b.account {
			a.holder = nil
		}
		a.mu.Unlock()
	}
	if cost >= charged {
		a.quotas.Reserve(b.source, quota.Cost{quota.CPU: float64(cost) / float64(time.Millisecond)}, time.Now())
	}
	switch {
	case b.deferred:
		return true, max(busy, a.Wait(b.source))
	case b.late:
		return true, max(lateAgain, a.Wait(b.source))
	}
	return b.spent > allowance, 0
}
