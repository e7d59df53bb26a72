// Package walltime compares recorded times with the clock over steps of the clock. A time that was
// recorded in an API object has no monotonic reading, so that a clock that is set forward by an hour
// makes whatever began a second ago an hour old:
//
//	clock := walltime.New()
//	...
//	age := time.Since(clock.Adjusted(condition.LastTransitionTime.Time))
package walltime

import (
	"sync"
	"time"
)

const (
	// minStep is the least difference between wall clock and monotonic clock that is a step.
	// Corrections of the rate of the clock differ by less than maxDrift.
	minStep  = 5 * time.Second
	maxDrift = 1000 // a thousandth of the time since the last look
	// maxSteps is the number of steps that are remembered.
	maxSteps = 64
)

// Clock notes the forward steps of the wall clock since New. A machine that was suspended has made
// such a step, too. It is safe for concurrent use.
type Clock struct {
	read func() (wall time.Time, elapsed time.Duration)

	mu      sync.Mutex
	wall    time.Time // at the last look
	elapsed time.Duration
	steps   []step // oldest first
}

// step is a forward step of the wall clock.
type step struct {
	before time.Time // what the clock showed at the latest before the step
	by     time.Duration
}

// New returns a Clock.
func New() *Clock {
	start := time.Now()
	return From(func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(start)
	})
}

// From returns a Clock that reads the wall clock, and the time that has passed, with a function: for tests.
func From(read func() (time.Time, time.Duration)) *Clock {
	c := &Clock{read: read}
	c.wall, c.elapsed = read()
	return c
}

// Adjusted returns recorded, a time that this clock showed, on the scale of the clock of now: a time
// from before a forward step is later by the step. Steps back are ignored: they make recorded times
// younger, so that what depends on their age comes late. A nil Clock has no steps.
func (c *Clock) Adjusted(recorded time.Time) time.Time {
	if c == nil || recorded.IsZero() {
		return recorded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	for _, s := range c.steps {
		if !recorded.After(s.before) {
			recorded = recorded.Add(s.by)
		}
	}
	return recorded
}

// look notes a step since the last look. mu must be held.
func (c *Clock) look() {
	wall, elapsed := c.read()
	passed := elapsed - c.elapsed
	before := c.wall.Add(passed)
	if by := wall.Sub(before); by >= minStep+passed/maxDrift {
		c.steps = append(c.steps, step{before, by})
		if len(c.steps) > maxSteps {
			c.steps = c.steps[1:]
		}
	}
	c.wall, c.elapsed = wall, elapsed
}
