package postgres

import (
	"testing"
	"time"
)

// TestValidity: a holder stops to publish before another client can acquire its lease, whatever its
// clocks do.
func TestValidity(t *testing.T) {
	const limit = leaseTime - leaseMargin
	start := time.Now()
	later := start.Add
	stepped := func(monotonic, wall time.Duration) time.Time {
		// A time with another monotonic reading than its wall clock says: the difference is the step.
		return later(monotonic).Round(0).Add(wall - monotonic)
	}
	for name, c := range map[string]struct {
		renewed, now time.Time
		want         bool
	}{
		"never renewed":                {now: start},
		"renewed now":                  {start, start, true},
		"just before its end":          {start, later(limit - 1), true},
		"at its end":                   {start, later(limit), false},
		"long after":                   {start, later(time.Hour), false},
		"the machine was suspended":    {start, stepped(time.Second, time.Hour), false},
		"the clock was set back":       {start, stepped(time.Second, -time.Hour), false},
		"renewed later than it is now": {later(time.Second), start, false},
	} {
		if got := (validity{c.renewed}).at(c.now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if takeover := leaseTime + acquireInterval + renewTimeout; takeover > 5*time.Second {
		t.Errorf("a takeover lasts up to %v", takeover)
	}
	if leaseTime-leaseMargin <= renewInterval+renewTimeout {
		t.Error("one slow renewal ends the lease")
	}
}
