package sim

import (
	"fmt"
	"sync"
	"time"
)

const (
	// maxWrong is by how much the clock of a program is wrong at most when it was set.
	maxWrong = 40 * time.Second
	// maxDrift is how much it goes wrong in a second.
	maxDrift = time.Millisecond
)

// wrongClock is the clock of a program, as far as programs can be given one: signatures have its time, and the sequence ids of an agent's
// statuses. It is safe for concurrent use. The zero value is right.
type wrongClock struct {
	mu    sync.Mutex
	by    time.Duration
	drift time.Duration // in a second
	since time.Time
}

// now returns the time that it shows.
func (c *wrongClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return now.Add(c.by + time.Duration(now.Sub(c.since).Seconds()*float64(c.drift)))
}

// jumpClock sets the clock of a program to another time, half of the times to the right one.
func (w *World) jumpClock(p *program) {
	random := w.flaky.random.of("clock" + p.name)
	c := &p.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by, c.drift, c.since = 0, 0, time.Now()
	if random.chance(50) {
		c.by, c.drift = random.upTo(2*maxWrong)-maxWrong, random.upTo(2*maxDrift)-maxDrift
		w.trace.note(p.name, fmt.Sprintf("has a clock that is wrong by %v, and by %v more each second", c.by.Round(time.Millisecond), c.drift))
	}
}
