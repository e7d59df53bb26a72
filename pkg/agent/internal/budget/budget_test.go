package budget

import (
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
)

// accounts returns those of sources that have as much CPU time as they want, or next to none.
func accounts(poor bool) *Accounts {
	rates := quota.Rates{}
	if poor {
		rates[quota.CPU] = quota.Rate{PerSecond: 0.001, Burst: 1}
	}
	a, begun := New(quota.New[wire.SourceID](quota.Config{Rates: rates, Subsystem: "test"})), time.Now()
	a.cpu = func() time.Duration { return time.Since(begun) } // which is that of the test's bubble, too
	return a
}

func inDebtOf(a *Accounts, source wire.SourceID) {
	b := a.Begin(source, nil)
	_ = b.Spend(int(10 * charged / perStep))
	a.End(b)
}

func TestSteps(t *testing.T) {
	spend := func(steps ...int) func(*Budget) error {
		return func(b *Budget) (err error) {
			for _, n := range steps {
				err = b.Spend(n)
			}
			return err
		}
	}
	run := func(limit, needed int) func(*Budget) error {
		return func(b *Budget) error {
			return b.Run(limit, func(allowed int) (int, bool) { return min(needed, allowed), needed > allowed })
		}
	}
	for name, c := range map[string]struct {
		poor     bool // the source is in debt
		taken    bool // somebody has the turn
		do       func(*Budget) error
		err      error
		deferred bool
		left     int
	}{
		"within the allowance":        {do: spend(allowance), left: ofWork - allowance},
		"takes the turn":              {do: spend(allowance, 1), left: ofWork - allowance - 1},
		"the turn is taken":           {taken: true, do: spend(allowance, 1), err: ErrExceeded, deferred: true, left: ofWork - allowance},
		"in debt":                     {poor: true, do: spend(inDebt), left: ofWork - inDebt},
		"in debt, and needs more":     {poor: true, do: spend(inDebt + 1), err: ErrExceeded, deferred: true, left: ofWork},
		"all":                         {do: spend(ofWork)},
		"too much":                    {do: spend(ofWork, 1), err: ErrExceeded},
		"too much at once":            {taken: true, do: spend(ofWork + 1), err: ErrExceeded},
		"run":                         {do: run(100, 50), left: ofWork - 50},
		"run beyond its own limit":    {do: run(100, 200), left: ofWork - 100},
		"run without room":            {do: run(0, 1), left: ofWork},
		"run again with the turn":     {do: run(ofWork, 2*allowance), left: ofWork - 2*allowance},
		"run without the turn":        {taken: true, do: run(ofWork, 2*allowance), err: ErrExceeded, deferred: true, left: ofWork},
		"run over the budget":         {do: run(2*ofWork, ofWork+1), err: ErrExceeded},
		"nothing runs when it is all": {do: func(b *Budget) error { _ = b.Spend(ofWork); return run(1, 1)(b) }, err: ErrExceeded},
	} {
		a := accounts(c.poor)
		if c.poor {
			inDebtOf(a, "s")
		}
		if c.taken {
			if _, wait := a.BeginTurn("other", nil); wait > 0 {
				t.Fatal(name, "there is no turn")
			}
		}
		b := a.Begin("s", nil)
		if err := c.do(b); !errors.Is(err, c.err) || b.Deferred() != c.deferred || b.Left() != c.left {
			t.Errorf("%s: %v, deferred %v, %d left, want %v, %v, %d", name, err, b.Deferred(), b.Left(), c.err, c.deferred, c.left)
		}
		if _, wait := a.End(b); (wait > 0) != c.deferred {
			t.Errorf("%s: come again after %v", name, wait)
		}
	}
	var none *Budget
	if err := errors.Join(none.Spend(1), none.Compile("", 1, false), none.Run(1, func(int) (int, bool) { return 9, true })); err != nil || none.Late() {
		t.Errorf("no budget: %v", err)
	}
}

// TestTurn: one reconcile has the turn at a time, and a source in debt gets none.
func TestTurn(t *testing.T) {
	a := accounts(false)
	first, _ := a.BeginTurn("a", nil)
	if _, wait := a.BeginTurn("b", nil); wait != busy {
		t.Errorf("the second waits for %v", wait)
	}
	_ = first.Spend(allowance + 1)
	if expensive, wait := a.End(first); !expensive || wait > 0 {
		t.Errorf("the first was expensive: %v, and waits for %v", expensive, wait)
	}
	second, wait := a.BeginTurn("b", nil)
	if wait > 0 {
		t.Errorf("the second waits for %v when the first has ended", wait)
	}
	a.since = a.since.Add(-maxTurn)
	if _, wait := a.BeginTurn("c", nil); wait > 0 {
		t.Errorf("the third waits for %v although the second takes long", wait)
	}
	if expensive, _ := a.End(second); expensive || a.holder == nil {
		t.Error("a turn that was over has ended that of another, or was expensive without steps")
	}
	poor := accounts(true)
	inDebtOf(poor, "a")
	if _, wait := poor.BeginTurn("a", nil); wait <= busy {
		t.Errorf("a source in debt waits for %v", wait)
	}
	if _, wait := poor.BeginTurn("b", nil); wait > 0 {
		t.Errorf("another source waits for %v", wait)
	}
}

// TestLate: what takes too long on the clock is over the budget, is not kept, because the machine may have been busy, and is done
// again.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, results := accounts(false), &Results{}
		b, _ := a.BeginTurn("s", results)
		b.Start()
		time.Sleep(maxTime)
		if b.Late() || b.Left() == 0 {
			t.Error("it is late too early")
		}
		time.Sleep(time.Second)
		if !b.Late() || b.Left() != 0 {
			t.Errorf("late %v, %d steps left", b.Late(), b.Left())
		}
		b.Stop()
		if b.Keep(Key{}, State{Version: "1"}, ofWork, "too late", 1); !results.IsZero() {
			t.Error("the result is kept")
		}
		if expensive, wait := a.End(b); b.Deferred() || !expensive || wait != lateAgain {
			t.Errorf("deferred %v, expensive %v, again after %v", b.Deferred(), expensive, wait)
		}
	})
}

// TestBusyMachine: what others use of the CPU makes no evaluation late, and is not charged.
func TestBusyMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := accounts(true)
		a.cpu = func() time.Duration { return 0 }
		b, _ := a.BeginTurn("s", nil)
		b.Start()
		for range 3 {
			if time.Sleep(maxTime); b.Late() || b.Left() == 0 {
				t.Error("it is late, and has used nothing")
			}
		}
		a.cpu = func() time.Duration { return maxTime + 1 }
		if time.Sleep(maxTime); !b.Late() {
			t.Error("it is not late, and has used too much")
		}
		a.cpu = func() time.Duration { return 0 }
		b.Stop()
		if a.End(b); a.Wait("s") > 0 {
			t.Errorf("the source waits for %v", a.Wait("s"))
		}
	})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, started := threadTime(), time.Now()
	time.Sleep(50 * time.Millisecond)
	if used := threadTime() - before; runtime.GOOS == "linux" && used > time.Since(started)/2 {
		t.Errorf("a thread that sleeps has used %v", used)
	}
	for threadTime() == before { // one that works uses some
	}
}

// TestResults: a kept result costs no time, counts as before, and is used while it would come out again.
func TestResults(t *testing.T) {
	a, key, state := accounts(false), Key{Manifest: 1, Kind: FeedbackRules}, State{"u", "1"}
	var results Results
	keep := func(steps, size int) {
		b, _ := a.BeginTurn("s", &results)
		before := b.Left()
		_ = b.Spend(steps)
		b.Keep(key, state, before, "value", size)
		a.End(b)
	}
	kept := func(spent int, state State) (left int, ok bool) {
		b := a.Begin("s", &results)
		_ = b.Spend(spent)
		_, ok = b.Kept(key, state)
		defer a.End(b)
		return b.Left(), ok
	}
	keep(allowance+1, 10)
	if left, ok := kept(0, state); !ok || left != ofWork-allowance-1 {
		t.Errorf("kept %v, %d left", ok, left)
	}
	for name, other := range map[string]State{"changed": {"u", "2"}, "recreated": {"v", "1"}, "without a version": {}} {
		if _, ok := kept(0, other); ok {
			t.Errorf("kept for an object that is %s", name)
		}
	}
	if _, ok := kept(10, state); !ok {
		t.Error("not kept although the budget suffices")
	}
	keep(ofWork+1, 20)
	if left, ok := kept(0, state); !ok || left != 0 {
		t.Errorf("over the budget: kept %v, %d left", ok, left)
	}
	if _, ok := kept(10, state); ok {
		t.Error("what was over the budget is kept for another budget")
	}
	keep(1, maxKept)
	if _, ok := kept(0, state); ok || len(a.kept) > 0 {
		t.Errorf("kept beyond the room, %v are taken", a.kept)
	}
	keep(1, 10)
	a.Drop("s", &results)
	if !results.IsZero() || len(a.kept) > 0 {
		t.Errorf("after Drop %v are taken", a.kept)
	}
}
