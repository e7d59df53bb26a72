package walltime

import (
	"testing"
	"time"
)

func TestAdjusted(t *testing.T) {
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		start time.Time
		// events are pairs: time that passes, and then a step of the clock.
		before, by, after time.Duration
		recorded          time.Duration // after the start
		later             bool          // recorded after the step, by the clock of then
		want              time.Duration // the age
	}{
		"no step":             {start, 10 * time.Second, 0, 10 * time.Second, 10 * time.Second, false, 10 * time.Second},
		"the clock is slewed": {start, time.Hour, time.Second, 10 * time.Second, time.Hour, false, 11 * time.Second},
		"an hour forward":     {start, 10 * time.Second, time.Hour, 10 * time.Second, 7 * time.Second, false, 13 * time.Second},
		"an hour forward, recorded in the moment": {start, 10 * time.Second, time.Hour, 10 * time.Second, 10 * time.Second, false, 10 * time.Second},
		"an hour forward, recorded afterwards":    {start, 10 * time.Second, time.Hour, 10 * time.Second, 10*time.Second + time.Hour + time.Second, true, 9 * time.Second},
		"booted without a clock":                  {time.UnixMilli(0), 10 * time.Second, start.Sub(time.UnixMilli(0)), 10 * time.Second, 7 * time.Second, false, 13 * time.Second},
		"booted without a clock, of before":       {time.UnixMilli(0), 0, start.Sub(time.UnixMilli(0)), 10 * time.Second, start.Sub(time.UnixMilli(0)) - time.Hour, false, time.Hour + 10*time.Second},
		"an hour back":                            {start, 2 * time.Hour, -time.Hour, 10 * time.Second, 0, false, time.Hour + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			wall, elapsed := c.start, time.Duration(0)
			clock := From(func() (time.Time, time.Duration) { return wall, elapsed })
			wall, elapsed = wall.Add(c.before), elapsed+c.before
			if c.later {
				clock.Adjusted(wall) // somebody looks before the step
			}
			wall = wall.Add(c.by)
			wall, elapsed = wall.Add(c.after), elapsed+c.after
			if got := wall.Sub(clock.Adjusted(c.start.Add(c.recorded))); got != c.want {
				t.Errorf("the age is %v, want %v", got, c.want)
			}
			if got := wall.Sub(clock.Adjusted(c.start.Add(c.recorded))); got != c.want {
				t.Errorf("the second time the age is %v, want %v", got, c.want)
			}
		})
	}
}

// TestSteps: several steps add up, and only the last ones are remembered.
func TestSteps(t *testing.T) {
	wall, elapsed := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), time.Duration(0)
	clock := From(func() (time.Time, time.Duration) { return wall, elapsed })
	recorded := wall
	for range 3 {
		wall, elapsed = wall.Add(time.Hour+time.Second), elapsed+time.Second
		clock.Adjusted(recorded)
	}
	if got := wall.Sub(clock.Adjusted(recorded)); got != 3*time.Second {
		t.Errorf("after three steps the age is %v, want 3 s", got)
	}
	for range 3 * maxSteps {
		wall, elapsed = wall.Add(time.Hour), elapsed+time.Second
		clock.Adjusted(recorded)
	}
	if len(clock.steps) != maxSteps {
		t.Errorf("%d steps are remembered, want %d", len(clock.steps), maxSteps)
	}
}

// TestNone: no Clock and no time are valid.
func TestNone(t *testing.T) {
	var none *Clock
	if now := time.Now(); !none.Adjusted(now).Equal(now) || !New().Adjusted(time.Time{}).IsZero() {
		t.Error("they are adjusted")
	}
}
